"""The engine core in a process, or a thread, of its own: messages, links, both ends.

front end                          engine core
RemoteCore  -- Add, Abort, Call -->  CoreServer
            <-- Outputs, Reply  --
"""
