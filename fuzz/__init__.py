"""Mutated messages, streams and headers, thrown at the protocol core: `python -m fuzz.run`.

    corpus, corpus_wire       what peers say when all is well
    mutate                    what chance makes of it
    target                    what every target is, and what must hold of all that we send
    frames, links, streams, posts, texts      the targets, each with what must hold there
    scenes, application       where a link stands when a message comes, and who uses it
    run                       counts, times, and shrinks what it finds
    regressions/              what was found once, tried again by the tests

Rules: the same seed gives the same inputs on every machine; nothing here is part of the package.
"""
