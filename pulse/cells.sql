-- name: app_cell
-- Where the app is served, if not here: cell and state.
SELECT cell, state FROM app_cells WHERE app_name = $1

-- name: app_cells
-- Every app that is not served here.
SELECT app_name, cell, state FROM app_cells
