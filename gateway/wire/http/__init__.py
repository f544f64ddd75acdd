"""HTTP codecs: header policy, host checks, content encodings, redaction and retry advice."""
