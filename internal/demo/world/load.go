package world

import (
	"context"
	"fmt"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/site"
)

// Block says that User blocks Blocked.
type Block struct {
	User    member.ID
	Blocked member.ID
}

// Loader is an empty site that takes a world in. [site.MySQL] and [site.Memory]
// are such.
type Loader interface {
	LoadMembers(ctx context.Context, members []site.Member) error
	LoadContacts(ctx context.Context, relations []site.Relation) error
	LoadPhotos(ctx context.Context, photos []site.Photo) error
	Block(ctx context.Context, user, blocked member.ID) error
}

// Load puts the world into a site. It emits no tasks: there is no index yet, or
// an empty one. The whole of testdata/demo.json takes MariaDB some seconds.
func (w *World) Load(ctx context.Context, into Loader) error {
	if err := into.LoadMembers(ctx, w.Members); err != nil {
		return fmt.Errorf("load the demo's members: %w", err)
	}
	if err := into.LoadContacts(ctx, w.Contacts); err != nil {
		return fmt.Errorf("load the demo's contacts: %w", err)
	}
	if err := into.LoadPhotos(ctx, w.Photos); err != nil {
		return fmt.Errorf("load the demo's photos: %w", err)
	}
	for _, b := range w.Blocks {
		if err := into.Block(ctx, b.User, b.Blocked); err != nil {
			return fmt.Errorf("load the demo's blocks: %w", err)
		}
	}
	return nil
}
