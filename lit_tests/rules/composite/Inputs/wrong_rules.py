from pullback.rules.registry import linear

linear("acme.sine", lambda op, cts: [])
