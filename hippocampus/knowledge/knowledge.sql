-- Corpora, documents, and the search over them. A caller is a user, or NULL for the app itself, with roles.

-- name: put_corpus
-- app, owner, name; description, configuration, readers, writers, each NULL to leave it; whether it must be new
-- redacts: $4 of app $1
SELECT p.id FROM put_corpus($1, $2, $3, $4, $5, $6, $7, $8) AS p

-- name: list_corpora
-- app, caller, roles, name or NULL, limit, after which name and id
SELECT c.id, c.name, c.user_id, c.description, c.config, c.created_at, c.updated_at, n.documents, n.chunks,
       ARRAY(SELECT a.grantee::text FROM corpus_access AS a WHERE a.corpus_id = c.id AND NOT a.may_write ORDER BY 1) AS readers,
       ARRAY(SELECT a.grantee::text FROM corpus_access AS a WHERE a.corpus_id = c.id AND a.may_write ORDER BY 1) AS writers
FROM corpus AS c
CROSS JOIN LATERAL (SELECT count(*) AS documents, coalesce(sum(d.chunks), 0)::bigint AS chunks
                    FROM knowledge_documents AS d WHERE d.corpus_id = c.id) AS n
WHERE c.app_name = $1 AND may_use_corpus(c, $2, $3, false) AND ($4::text IS NULL OR c.name = $4)
  AND ($6::text IS NULL OR (c.name, c.id) > ($6, $7::uuid))
ORDER BY c.name, c.id LIMIT $5

-- name: corpus_to_remove
-- app, caller, roles, name: only its owner removes it
SELECT c.id FROM find_corpus($1, $2, $3, $4, true) AS c WHERE c.user_id IS NOT DISTINCT FROM $2

-- name: remove_documents
-- corpus, documents at most: so that no transaction is long
DELETE FROM knowledge_documents WHERE id IN (
    SELECT id FROM knowledge_documents WHERE corpus_id = $1 ORDER BY id LIMIT $2)

-- name: remove_corpus
DELETE FROM corpus WHERE id = $1

-- name: put_document
-- app, caller, roles, corpus, source, title, parts, whether they are pages, whether Markdown, type, metadata, bytes,
-- whether a job is enqueued
-- redacts: $6, $7, $11 of app $1
SELECT document_id, is_new FROM put_document($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)

-- name: put_document_traced
-- as put_document; then the context of a span, which the job carries
-- redacts: $6, $7, $11 of app $1
SELECT document_id, is_new
FROM put_document(with_traceparent($14, $1), $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)

-- name: retry_document
SELECT retry_document($1, $2, $3, $4)

-- name: retry_document_traced
-- as retry_document; then the context of a span, which the job carries
SELECT retry_document(with_traceparent($5, $1), $2, $3, $4)

-- name: remove_document
SELECT remove_document($1, $2, $3, $4, $5)

-- name: list_documents
-- app, caller, roles, corpus or NULL, source or NULL, id or NULL, status or NULL, limit, after which id
SELECT d.id, c.name AS corpus, d.source_uri, d.title, d.mime_type, d.metadata, d.version, d.last_version, d.status,
       d.error_code, d.error, d.chunks, d.chunks_done, d.chunks_total, d.created_at, d.updated_at, d.ingested_at,
       (SELECT count(*) FROM knowledge_base AS b
        WHERE b.document_id = d.id AND b.upto_version IS NULL AND b.from_version <= d.version
          AND b.embedding_model IS NULL) AS without_vector
FROM knowledge_documents AS d JOIN corpus AS c ON c.id = d.corpus_id
WHERE d.app_name = $1 AND may_use_corpus(c, $2, $3, false)
  AND ($4::text IS NULL OR c.id = ANY (readable_corpora($1, $2, $3, ARRAY[$4])))
  AND ($5::text IS NULL OR d.source_uri = $5) AND ($6::uuid IS NULL OR d.id = $6)
  AND ($7::text IS NULL OR d.status = $7) AND ($9::uuid IS NULL OR d.id > $9)
ORDER BY d.id LIMIT $8

-- name: read_text
-- app, caller, roles, document, from, upto, version or NULL
SELECT d.id, c.name AS corpus, d.source_uri, d.title, v.version, substr(v.body, $5::integer + 1, $6::integer - $5) AS content,
       char_length(v.body) AS length
FROM knowledge_documents AS d JOIN corpus AS c ON c.id = d.corpus_id
JOIN knowledge_versions AS v ON v.document_id = d.id AND v.version = coalesce($7::integer, d.version)
                            AND v.ingested_at IS NOT NULL
WHERE d.app_name = $1 AND d.id = $4 AND may_use_corpus(c, $2, $3, false)

-- name: search_knowledge
-- app, caller, roles, query, embedding or NULL, its model, limit, corpora, metadata, sources, as of, chunks of each
-- document, fusion
SELECT * FROM search_knowledge($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)

-- name: begin_ingest
SELECT b.*, d.app_name FROM begin_ingest($1) AS b JOIN knowledge_documents AS d ON d.id = $1

-- name: known_chunks
-- document, the version on its way: what it may share with the current one, and what is staged of it
SELECT b.id, b.chunk_hash, b.nth FROM knowledge_base AS b WHERE b.document_id = $1 AND b.upto_version IS NULL

-- name: stage_chunks
SELECT stage_chunks($1, $2, $3, $4, $5, $6, $7)

-- name: finish_ingest
SELECT finish_ingest($1, $2, $3)

-- name: fail_ingest
SELECT fail_ingest($1, $2, $3, $4)

-- name: list_vectorless_chunks
SELECT * FROM list_vectorless_chunks($1, $2)

-- name: give_chunk_vectors
SELECT give_chunk_vectors($1, $2)
