"""The whole product under fire: real processes, real faults, and a count of what was lost or doubled.

    python -m tests.chaos --seconds 60 --seed 7 [--kills-min 12] [--report FILE]

Every role of the Procfile runs as processes of its own on an embedded PostgreSQL that writes to the disk, and asks a
fake Gemini that fails a fifth of its calls. Writers append to fifty sessions, by library and by HTTP, and keep a ledger
of what they were answered. Meanwhile processes are killed, stopped and told to end, connections are cut and the
database is restarted, as a schedule says that the seed alone decides. SQL then counts what is not as the ledger says.

    scene      the database, the fake Gemini and the roles, made and taken away
    roles      one process of a role, started again whenever it ends
    writers    what is appended, and the ledger
    faults     the schedule, and doing it
    recovery   how long after kill -9 a job is with somebody else
    verdict    the statements that count
    drill      a run from its beginning to its end
    report     what is printed
"""
