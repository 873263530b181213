"""Imported last by the process that tests fork the program from: what it has imported is no garbage of its children."""

import gc

gc.collect()
gc.freeze()
gc.enable()
