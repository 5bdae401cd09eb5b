package main

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
)

// latestContact is what a site runs without activityd: join the viewer's contacts with
// their activity and sort. It does not ask what the viewer may see.
const latestContact = `
SELECT u.id FROM contacts c JOIN users u ON u.id = c.contact_id
WHERE c.user_id = ? AND u.last_upload > 0 ORDER BY u.last_upload DESC, u.id DESC LIMIT 10`

// exactAnswer is the definition in one statement: of all visible photos of all
// contacts the newest names the owner.
const exactAnswer = `
SELECT p.owner_id, p.id FROM contacts c JOIN photos p ON p.owner_id = c.contact_id
LEFT JOIN contacts back ON back.user_id = c.contact_id AND back.contact_id = c.user_id
LEFT JOIN blocks b ON b.user_id = c.contact_id AND b.blocked_id = c.user_id
WHERE c.user_id = ? AND b.user_id IS NULL AND (p.visibility = 'public'
  OR p.visibility IN ('friends', 'friends_family') AND back.is_friend OR p.visibility IN ('family', 'friends_family') AND back.is_family)
ORDER BY p.date_upload DESC, p.id DESC LIMIT 1`

// joinAndSort asks for the latest contacts, and for the photos of the first one. If
// that one shows nothing to the viewer, a site would have to ask again; here the
// query fails.
func (s *suite) joinAndSort(ctx context.Context, v contacts.Viewer) error {
	owner, err := firstID(ctx, s.db, latestContact, v.ID)
	if err != nil {
		return err
	}
	return s.show(ctx, v, owner)
}

// oneStatement asks for the owner of the newest visible photo, and for its photos.
func (s *suite) oneStatement(ctx context.Context, v contacts.Viewer) error {
	owner, err := firstID(ctx, s.db, exactAnswer, v.ID)
	if err != nil {
		return err
	}
	return s.show(ctx, v, owner)
}

func (s *suite) show(ctx context.Context, v contacts.Viewer, owner member.ID) error {
	album, err := s.store.VisiblePhotos(ctx, v, owner, shown)
	if err == nil && len(album.Photos) != shown {
		err = fmt.Errorf("viewer %s was shown %d photos, want %d", v.ID, len(album.Photos), shown)
	}
	return err
}

// firstID returns the first column of the first row.
func firstID(ctx context.Context, db *sql.DB, text string, args ...any) (id member.ID, err error) {
	rows, err := db.QueryContext(ctx, text, args...)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return 0, err
	}
	into := make([]any, len(columns))
	into[0] = &id
	for i := range into[1:] {
		into[i+1] = new(any)
	}
	for first := true; rows.Next(); first = false {
		if !first {
			continue // the server sends it anyway
		}
		if err := rows.Scan(into...); err != nil {
			return 0, err
		}
	}
	return id, rows.Err()
}

// readsBesidePlain compares reads with plain SQL, and with the walk that is used
// when there is no index.
func (s *suite) readsBesidePlain(ctx context.Context) error {
	const part = "Plain SQL, by the viewer's number of contacts, p50; the ratio is to activityd's read"
	queries := []struct {
		name string
		ask  query
		aim  *aim // with 20,000 contacts
	}{
		{"join contacts, sort by last upload", s.joinAndSort, atLeast(20)},
		{"the definition in one statement", s.oneStatement, atLeast(20)},
		{"activityd's walk, without the index", s.walk, nil},
	}
	const own = "activityd"
	median := atQuantile(0.5)
	for _, w := range queries {
		for i, n := range s.options.site.Contacts {
			viewer, name := s.options.site.viewer(i), fmt.Sprintf("%s, %d contacts", w.name, n)
			ours := asking(own, viewer, s.read())
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
			if n == 20_000 {
				f.Aim = w.aim
			}
			s.results.add(f)
		}
	}
	return nil
}
