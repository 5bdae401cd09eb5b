package console

import "time"

// Sealed is sealed.
func (c *Console) Sealed(secret string, ends time.Time) string { return c.sealed(secret, ends) }

// Opened is opened.
func (c *Console) Opened(session string, now time.Time) string { return c.opened(session, now) }
