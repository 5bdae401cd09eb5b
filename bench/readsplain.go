package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/demo"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
)

// plainly asks by one of the demo's statements, which are exact.
func (s *suite) plainly(text string) query {
	return func(ctx context.Context, v contacts.Viewer) error {
		album, err := demo.AskPlainly(ctx, s.db, text, v, shown)
		if err == nil && len(album.Photos) == 0 {
			err = fmt.Errorf("viewer %s was shown nothing", v.ID)
		}
		return err
	}
}

// benchPlain compares reads with plain SQL, and with the walk that is used when there is
// no index. The key of the demo's statement is there for this part alone: elsewhere it would
// make each upload dearer. The members whose last_upload counts private uploads are away
// until then, as all members by latest upload begin with them.
func (s *suite) benchPlain(ctx context.Context) (err error) {
	site := s.options.site
	if err := s.fill(ctx, append(site.viewers(), firstMember, quietViewer)); err != nil {
		return err
	}
	const counted = "UPDATE users SET last_upload = IF(?, NULL, id - ? + ?) WHERE id BETWEEN ? AND ?"
	counting := []any{firstCounted, epoch + 11_000_000, firstCounted, firstCounted + privates - 1}
	defer func() {
		ctx := context.WithoutCancel(ctx)
		_, countErr := s.db.ExecContext(ctx, counted, append([]any{false}, counting...)...)
		_, dropErr := s.db.ExecContext(ctx, "ALTER TABLE users DROP KEY last_upload")
		err = errors.Join(err, countErr, dropErr)
	}()
	if _, err := s.db.ExecContext(ctx, counted, append([]any{true}, counting...)...); err != nil {
		return err
	}
	if err := demo.AddLastUploadKey(ctx, s.db); err != nil {
		return err
	}
	if _, err := s.db.ExecContext(ctx, "ANALYZE TABLE users"); err != nil {
		return err
	}
	if err := s.readsBesidePlain(ctx); err != nil {
		return err
	}
	return s.quietBesidePlain(ctx)
}

// readsBesidePlain asks for viewers among whose contacts are those that uploaded last of
// the whole site.
func (s *suite) readsBesidePlain(ctx context.Context) error {
	const part = "Plain SQL, by the viewer's number of contacts, p50; the ratio is to activityd's read"
	for i, n := range s.options.site.Contacts {
		if err := s.besidePlain(ctx, part, fmt.Sprintf("%d contacts", n), s.options.site.viewer(i), s.read(), n == 20_000); err != nil {
			return err
		}
	}
	return nil
}

// quietBesidePlain asks for the member whose contacts are the quietest of those that ever
// uploaded, and for one with a few contacts of all kinds.
func (s *suite) quietBesidePlain(ctx context.Context) error {
	const part = "Plain SQL for a member whose contacts are not those that uploaded last, p50; the ratio is to activityd's read"
	site := s.options.site
	reader := s.reader()
	byIndex := func(ctx context.Context, v contacts.Viewer) error {
		a, err := reader.Read(ctx, v, shown)
		if err == nil && (a.Source != recent.FromIndex || len(a.Photos) == 0) {
			err = fmt.Errorf("viewer %s was shown %d photos, from the %s: want some, from the index", v.ID, len(a.Photos), a.Source)
		}
		return err
	}
	some := fmt.Sprintf("%d contacts of %d members that ever uploaded", fewestContacts, site.Members)
	if err := s.besidePlain(ctx, part, some, firstMember, byIndex, false); err != nil {
		return err
	}
	quiet := fmt.Sprintf("the %d quietest of them", site.quiet())
	return s.besidePlain(ctx, part, quiet, quietViewer, byIndex, false)
}

// besidePlain compares a viewer's read with other ways, and the read with the better of the
// demo's two.
func (s *suite) besidePlain(ctx context.Context, part, whose string, viewer member.ID, read query, aimed bool) error {
	const own = "activityd"
	ways := []struct {
		name string
		ask  query
	}{
		{"members by latest upload, with a key on it", s.plainly(demo.MembersFirst)},
		{"contacts first", s.plainly(demo.ContactsFirst)},
		{"activityd's walk, without the index", s.walk},
	}
	median := atQuantile(0.5)
	ours := asking(own, viewer, read)
	var better *figure
	for i, w := range ways {
		name := w.name + ", " + whose
		// The first read after the other query finds the caches changed by it: two
		// of three do not.
		times, err := s.calls(ctx, s.options.reads, s.options.plain, []contender{asking(name, viewer, w.ask), ours, ours, ours})
		if err != nil {
			return err
		}
		f := figure{
			Part: part, Name: name, Unit: "ms", Value: times[name].spread(median),
			Against: own, Ratio: times[name].over(times[own], median),
		}
		s.results.add(f)
		if i < 2 && (better == nil || f.Value.Median < better.Value.Median) {
			better = &f
		}
	}
	better.Name = "the better of these two, " + whose
	if aimed {
		better.Aim = atLeast(20)
	}
	s.results.add(*better)
	return nil
}
