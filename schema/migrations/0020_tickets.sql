-- Tickets that may start runs, and that last for more than one connection.
--
-- Programs that do not know the column treat such a ticket as one that follows streams.

ALTER TABLE stream_tickets ADD COLUMN may_run boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN stream_tickets.may_run IS 'whether it starts and cancels runs of the session, too';
