"""The MCP server: the memory of one user as tools, resources and a prompt, over stdio and streamable HTTP.

App and user come from the connection, never from an argument: `caller` says who calls. `tools` has the tools,
`readings` the resources and the prompt, `server` the protocol, `stdio` and `endpoint` the two transports.
"""
