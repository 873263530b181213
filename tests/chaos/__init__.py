"""A chaos test of the whole product: real processes, real faults, and a count of what was lost or duplicated.

    python -m tests.chaos --seconds 60 --seed 7 [--kills-min 12] [--report FILE]

Every role of the Procfile runs in separate processes on a durable embedded PostgreSQL, and calls a fake Gemini that
fails a fifth of its calls. Writers append to fifty sessions, over the library and over HTTP, and record every response
in a ledger. Meanwhile processes are killed, stopped and terminated, connections are cut and the database is restarted,
on a schedule that the seed alone decides. SQL then counts every deviation from the ledger.

    scene      the environment: the database, the fake Gemini and the roles
    roles      one process of a role, restarted whenever it ends
    writers    the writers and their ledger
    faults     the schedule, and the injector
    recovery   how long after kill -9 another worker has a job
    verdict    the rules, as SQL statements
    drill      a run from beginning to end
    report     the printed report
"""
