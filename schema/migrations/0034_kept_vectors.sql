-- Vectors that were paid for and are not stored yet, beside the reply whose texts they are of.
--
-- A program that does not know these columns asks for the vectors again, and deletes them with the row.

ALTER TABLE model_replies
    ADD COLUMN vectors_hash text,
    ADD COLUMN vectors      bytea,
    ADD CONSTRAINT model_replies_vectors_hashed CHECK ((vectors IS NULL) = (vectors_hash IS NULL));
ALTER TABLE model_replies ALTER COLUMN vectors SET STORAGE EXTERNAL;
COMMENT ON COLUMN model_replies.vectors_hash IS 'SHA-256, hex, of the embedding model and of the texts that it was given.';
COMMENT ON COLUMN model_replies.vectors IS
    'One for each of these texts, in their order: numbers of four bytes, the least significant byte first.';
