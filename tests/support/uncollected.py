"""Imported first by the process that tests fork the program from: no garbage is searched until `frozen` is imported."""

import gc

gc.disable()
