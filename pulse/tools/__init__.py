"""Tools of an app: registered in the database, called under its permissions and limits, every call recorded."""
