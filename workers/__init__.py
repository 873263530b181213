"""The processes: the only package that combines the others. No other package imports it.

Every public name is imported from here, and loaded when it is first used. `workers.adk`, which needs an extra, is an
entry point of its own.
"""

# No import stands here, not even of `typing`: see `workers.__main__`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from workers.models.factory import make_generator
    from workers.settings import Settings, SettingsError, load_settings
    from workers.writer import main_writer

__all__ = ["Settings", "SettingsError", "load_settings", "main_writer", "make_generator"]

#: The module of each public name.
_PUBLIC: dict[str, str] = {
    name: module
    for module, names in {
        "workers.models.factory": "make_generator",
        "workers.settings": "Settings SettingsError load_settings",
        "workers.writer": "main_writer",
    }.items()
    for name in names.split()
}


if not TYPE_CHECKING:  # a type checker takes the names from the imports above, and reports any other

    def __getattr__(name: str) -> object:
        import importlib

        module = _PUBLIC.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(importlib.import_module(module), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
