-- What people write: who wrote a statement of a fact by hand.

-- NULL: it was extracted; '': by hand, by nobody in particular.
ALTER TABLE fact_versions ADD COLUMN written_by text;
