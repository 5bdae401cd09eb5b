package admit

import "context"

type placeKey struct{}

// WithPlace returns a context with the place that a request has.
func WithPlace(ctx context.Context, p Place) context.Context {
	return context.WithValue(ctx, placeKey{}, p)
}

// PlaceOf returns the place that [WithPlace] gave to a context. Without it, there is one that takes none.
func PlaceOf(ctx context.Context) Place {
	if p, ok := ctx.Value(placeKey{}).(Place); ok {
		return p
	}
	return noPlace{}
}

// noPlace is that of a read which nothing bounds.
type noPlace struct{}

// Pause implements [Place].
func (noPlace) Pause() {}

// Resume implements [Place].
func (noPlace) Resume(context.Context) error { return nil }

// Walk implements [Place].
func (noPlace) Walk() bool { return true }

// Leave implements [Place].
func (noPlace) Leave(bool) {}

// Unlimited is an [Admitter] that lets all in.
type Unlimited struct{}

// Enter implements [Admitter].
func (Unlimited) Enter(context.Context, By) (Place, error) { return noPlace{}, nil }

// Refuses implements [Admitter].
func (Unlimited) Refuses(By) bool { return false }

// Busy implements [Admitter].
func (Unlimited) Busy() bool { return false }
