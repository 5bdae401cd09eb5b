package redisnodes

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// The state of a node follows from what was seen of it, and from the time.
func TestStates(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	refused, stamp, old := fmt.Errorf("x: %w", ErrRefused), fmt.Errorf("x: %w", ErrStamp), fmt.Errorf("x: %w", ErrUnknown)
	believed := &knowledge{}
	for name, c := range map[string]struct {
		seen seen
		want State
		err  error
	}{
		"nothing was seen":                     {seen{}, Unknown, ErrUnseen},
		"it answers":                           {seen{probed: now, known: believed}, Usable, nil},
		"it answers, and nothing was compared": {seen{probed: now}, Usable, nil},
		"it answered some time ago":            {seen{probed: ago(seenFor), known: believed}, Unknown, ErrUnseen},
		"a call had no answer":                 {seen{silent: now.Add(1)}, Away, ErrUnavailable},
		"a call had no answer some time ago":   {seen{silent: now, probed: now}, Usable, nil},
		"silent, though it was probed":         {seen{silent: now.Add(1), probed: now}, Away, ErrUnavailable},
		"silent, and it refused before":        {seen{silent: now.Add(1), refused: refused, refusedAt: now}, Away, ErrUnavailable},
		"the probe failed":                     {seen{probed: now, failed: ErrUnavailable}, Away, ErrUnavailable},
		"the probe was late":                   {seen{probed: now, failed: context.DeadlineExceeded}, Away, context.DeadlineExceeded},
		"the probe failed some time ago":       {seen{probed: ago(seenFor), failed: ErrUnavailable}, Unknown, ErrUnseen},
		"no such database":                     {seen{probed: now, failed: ErrNoDatabase}, Away, ErrNoDatabase},
		"the probe was refused":                {seen{probed: now, failed: refused}, Refusing, ErrRefused},
		"refused, and old":                     {seen{probed: now, failed: refused, known: &knowledge{err: old}}, Refusing, ErrRefused},
		"away, and old":                        {seen{probed: now, failed: ErrUnavailable, known: &knowledge{err: old}}, Away, ErrUnavailable},
		"a write was refused":                  {seen{probed: now, refused: refused, refusedAt: ago(refusalTTL - 1)}, Refusing, ErrRefused},
		"refused, and never probed":            {seen{refused: refused, refusedAt: now}, Refusing, ErrRefused},
		"a write was refused some time ago":    {seen{probed: now, refused: refused, refusedAt: ago(refusalTTL)}, Usable, nil},
		"other settings":                       {seen{probed: now, failed: stamp}, Refusing, ErrStamp},
		"other settings, and it refused":       {seen{probed: now, failed: stamp, refused: refused, refusedAt: now}, Refusing, ErrStamp},
		"a reply that makes no sense":          {seen{probed: now, failed: errors.New("x")}, Refusing, nil},
		"it may be old":                        {seen{probed: now, known: &knowledge{err: old}}, Unknown, ErrUnknown},
		"it may be old, and was never probed":  {seen{known: &knowledge{err: old}}, Unknown, ErrUnknown},
		"it is back":                           {seen{probed: now, back: ago(behindFor - 1), known: believed}, Behind, nil},
		"it has been back for a while":         {seen{probed: now, back: ago(behindFor), known: believed}, Usable, nil},
		"it is back, and refuses":              {seen{probed: now, back: now, failed: refused}, Refusing, ErrRefused},
		"it is back, and may be old":           {seen{probed: now, back: now, known: &knowledge{err: old}}, Unknown, ErrUnknown},
	} {
		got, err := c.seen.state(now)
		if got != c.want || c.err != nil && !errors.Is(err, c.err) || (err == nil) != (got <= Behind) {
			t.Errorf("%s: %s, %v, want %s, %v", name, got, err, c.want, c.err)
		}
	}
}

// Which probes follow each other decides whether a node is behind: it is when it was away, and comes
// back with what it had.
func TestANodeThatIsBack(t *testing.T) {
	t.Parallel()
	old := &knowledge{err: ErrUnknown}
	for name, c := range map[string]struct {
		before []error // of the probes; ErrUnknown: it answers, and its data may be old
		want   State
	}{
		"always well":         {[]error{nil}, Usable},
		"away":                {[]error{ErrUnavailable}, Behind},
		"late":                {[]error{context.DeadlineExceeded}, Behind},
		"away, then refusing": {[]error{ErrUnavailable, ErrRefused}, Usable},
		"away, then unknown":  {[]error{ErrUnavailable, ErrUnknown}, Usable},
		"unknown, then away":  {[]error{ErrUnknown, ErrUnavailable}, Behind},
		"unknown":             {[]error{ErrUnknown}, Usable},
		"other settings":      {[]error{ErrStamp}, Usable},
		"the caller left":     {[]error{nil, context.Canceled}, Usable},
		"away, and it left":   {[]error{ErrUnavailable, context.Canceled}, Behind},
	} {
		now := time.Unix(1_700_000_000, 0)
		n := &Node{addr: "a:1", nodes: &Nodes{now: func() time.Time { return now }}}
		n.seen.Store(new(seen))
		for _, err := range append([]error{nil}, append(c.before, nil)...) {
			now = now.Add(2 * time.Second)
			n.see(func(s *seen) { s.known = nil })
			if errors.Is(err, ErrUnknown) {
				n.see(func(s *seen) { s.known = old })
				err = nil
			}
			n.probed(err)
		}
		now = now.Add(seenFor - 1)
		if got, _ := n.seen.Load().state(now); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		for range 3 {
			if status := n.probed(nil); status.State != c.want {
				t.Errorf("%s: %s after another probe, want %s", name, status.State, c.want)
			}
		}
		now = now.Add(behindFor)
		if status := n.probed(nil); status.State != Usable || status.Err != nil {
			t.Errorf("%s: %s in the end: %v", name, status.State, status.Err)
		}
	}
}
