"""The daemon's verbs: each module holds the requests of one family, every one with its handler.

To add a verb, add a subclass of `gpudeck.scheduler.verbs.request.Request` to a module of this
package (the daemon finds it by itself) and a method of the same meaning to
`gpudeck.scheduler.client`.
"""
