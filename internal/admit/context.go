package admit

import "context"

type placeKey struct{}

type placed struct {
	place Place
	by    By
}

// WithPlace returns a context with the place that a request has, and for what its read is.
func WithPlace(ctx context.Context, p Place, by By) context.Context {
	return context.WithValue(ctx, placeKey{}, placed{p, by})
}

// PlaceOf returns what [WithPlace] gave to a context. Without it, there is a place that takes none.
func PlaceOf(ctx context.Context) (Place, By) {
	if v, ok := ctx.Value(placeKey{}).(placed); ok {
		return v.place, v.by
	}
	return noPlace{}, By{}
}

// noPlace is that of a read which nothing bounds.
type noPlace struct{}

// Turn implements [Place].
func (noPlace) Turn(Class) {}

// Leave implements [Place].
func (noPlace) Leave(bool) {}

// Unlimited is an [Admitter] that lets all in.
type Unlimited struct{}

// Enter implements [Admitter].
func (Unlimited) Enter(context.Context, Class, By) (Place, error) { return noPlace{}, nil }

// Refuses implements [Admitter].
func (Unlimited) Refuses(By) bool { return false }

// Busy implements [Admitter].
func (Unlimited) Busy() bool { return false }
