package main

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
)

// latestContact is what a site runs today: join the viewer's contacts with their
// activity and sort. It knows nothing of what the viewer may see: that comes
// after it.
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

// joinAndSort asks for the latest contacts, and for the photos of the first. Where
// that one shows nothing to the viewer a site would have to go on; it is not made
// to here.
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
			continue // it is sent all the same
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
	ways := []struct {
		name string
		ask  query
		aim  *aim // with 20,000 contacts
	}{
		{"join contacts, sort by last upload", s.joinAndSort, atLeast(20)},
		{"the definition in one statement", s.oneStatement, atLeast(20)},
		{"activityd's walk, without the index", s.walk, nil},
	}
	for _, w := range ways {
		for i, n := range s.options.site.Contacts {
			theirs, ours, err := s.sideBySide(ctx, s.options.site.viewer(i), w.ask)
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			value, ratio := spreadOf(theirs), ratios(theirs, ours)
			f := figure{Part: part, Name: fmt.Sprintf("%s, %d contacts", w.name, n), Unit: "ms", Value: &value, Against: "activityd", Ratio: &ratio}
			if n == 20_000 {
				f.Aim = w.aim
			}
			s.results.add(f)
			fmt.Fprintf(s.log, "%s: %s ms, × %s\n", f.Name, f.Value, f.Ratio)
		}
	}
	return nil
}

// sideBySide returns the median times of another way and of ours, round by round,
// asked in turn. The other is asked as often as there is time for.
func (s *suite) sideBySide(ctx context.Context, viewer member.ID, other query) (theirs, ours []float64, err error) {
	read := s.read()
	for round := range s.options.rounds + 1 {
		var them, us []float64
		for end := time.Now().Add(s.options.plain); len(them) == 0 || time.Now().Before(end) && len(them) < s.options.reads; {
			took, err := timed(func() error { return other(ctx, contacts.Viewer{ID: viewer}) })
			if err != nil {
				return nil, nil, err
			}
			them = append(them, took)
			for range 3 { // the first is slowed down by what the other did to the caches
				if took, err = timed(func() error { return read(ctx, contacts.Viewer{ID: viewer}) }); err != nil {
					return nil, nil, err
				}
				us = append(us, took)
			}
		}
		if round > 0 {
			theirs, ours = append(theirs, quantilesOf(them, 0.5)...), append(ours, quantilesOf(us, 0.5)...)
		}
	}
	return theirs, ours, nil
}
