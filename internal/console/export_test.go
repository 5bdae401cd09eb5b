package console

import "time"

// Keys are the keys of a process.
type Keys struct{ keys }

// NewKeys returns new ones.
func NewKeys() Keys { return Keys{newKeys()} }

// Session is keys.session, and Secret keys.secret.
func (k Keys) Session(secret string, ends time.Time) string { return k.session(secret, ends) }

// Secret opens a session.
func (k Keys) Secret(session string, now time.Time) string { return k.secret(session, now) }
