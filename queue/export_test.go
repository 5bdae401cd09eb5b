package queue

// LookAtAll makes the next claims look at all that waits, however slow the last look was.
func (q *Queue) LookAtAll(queue string) { q.cameBack(map[string]bool{queue: true}) }

// SweepAll makes the next sweep look at all leases, and at all ordering keys.
func (q *Queue) SweepAll() { q.sweeps = sweeps{} }
