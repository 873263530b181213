-- The documents of which large corpora are sampled, in the order in which they are: see `chunk_candidates`.
-- On a table of millions of documents, create it CONCURRENTLY beforehand.
CREATE INDEX IF NOT EXISTS knowledge_documents_sample_idx ON knowledge_documents (corpus_id, hashtext(source_uri), id) WHERE chunks > 0;
