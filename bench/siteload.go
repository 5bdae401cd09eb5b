package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"time"

	"github.com/activityd/activityd/internal/mysql"
)

// loadSite fills the tables of an empty backend.
func loadSite(ctx context.Context, b *backend, s siteSize, log io.Writer) error {
	return load(ctx, b, s.statements(), log)
}

// load runs statements that make a site, on one connection.
func load(ctx context.Context, b *backend, list []loading, log io.Writer) error {
	conn, err := b.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	start := time.Now()
	for _, st := range list {
		if _, err := conn.ExecContext(ctx, st.text, st.args...); err != nil {
			return mysql.Translate(ctx, "make the site: "+st.what, err)
		}
		fmt.Fprintf(log, "%6.1f s: %s\n", time.Since(start).Seconds(), st.what)
	}
	return nil
}

// loading is one statement that makes a part of the site.
type loading struct {
	what string
	text string
	args []any
}

func (s siteSize) statements() []loading {
	return append(s.users(), append(s.contacts(), append(s.photos(),
		loading{"statistics", "ANALYZE TABLE users, contacts, photos", nil},
		loading{"numbers dropped", "DROP TABLE numbers", nil})...)...)
}

// newestOf is the date of a member's newest photo: spread over a year and a half
// before the epoch, in no order.
const newestOf = "1700000000 - MOD(CRC32(m.n), 50000000)"

func (s siteSize) users() []loading {
	return append(numbersBelow(max(s.ordinary(), s.most(), s.Private, 1000)+1), []loading{
		{
			"members", "INSERT INTO users (id, username, last_upload) SELECT ? + m.n, CONCAT('member', m.n), IF(m.n < ?, " + newestOf + ", NULL)" +
				" FROM numbers m WHERE m.n < ?", []any{firstMember, s.Members, s.ordinary()},
		},
		{
			"stars", "INSERT INTO users (id, username, last_upload) SELECT ? + n, CONCAT('star', n), ? - n * 10000 FROM numbers WHERE n < ?",
			[]any{firstStar, epoch + 10_000_000, stars},
		},
		{
			"viewers", "INSERT INTO users (id, username) SELECT ? + n, CONCAT('viewer', n) FROM numbers WHERE n < ?",
			[]any{firstViewer, len(s.Contacts)},
		},
		{"owners", "INSERT INTO users (id, username, last_upload) VALUES (?, 'hidden', ?), (?, 'open', ?)", []any{hiddenOwner, epoch + s.Private, openOwner, epoch}},
		{
			"old contacts", "INSERT INTO users (id, username, last_upload) SELECT ? + n, CONCAT('old', n), ? - n FROM numbers WHERE n < ?",
			[]any{firstOld, epoch - 100_000_000, olds},
		},
		{
			"their viewers", "INSERT INTO users (id, username) VALUES (?, 'hidden viewer'), (?, 'open viewer'), (?, 'close viewer')",
			[]any{hiddenViewer, openViewer, closeViewer},
		},
		{
			"members who upload in private only", "INSERT INTO users (id, username, last_upload) SELECT ? + n, CONCAT('private', n), NULL FROM numbers WHERE n < ?" +
				" UNION ALL SELECT ? + n, CONCAT('counted', n), ? + n FROM numbers WHERE n < ?",
			[]any{firstPrivate, privates, firstCounted, epoch + 11_000_000, privates},
		},
		{
			"their viewers", "INSERT INTO users (id, username) VALUES (?, 'private viewer'), (?, 'counted viewer'), (?, 'plain viewer')",
			[]any{privateViewer, countedViewer, plainViewer},
		},
		{
			"uploaders", "INSERT INTO users (id, username, last_upload) SELECT ? + n, CONCAT('uploader', n), ? FROM numbers WHERE n < ?",
			[]any{firstUploader, epoch + 20_000_000, len(s.Followers)},
		},
	}...)
}

// numbersBelow makes the table of numbers from 0 up to a count, of a million at most.
func numbersBelow(count int) []loading {
	return []loading{
		{"numbers", "CREATE TABLE numbers (n BIGINT PRIMARY KEY) ENGINE=InnoDB", nil},
		{"a thousand numbers", "INSERT INTO numbers WITH RECURSIVE r (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM r WHERE i < 999) SELECT i FROM r", nil},
		{
			"more numbers", "INSERT INTO numbers SELECT a.n * 1000 + b.n FROM numbers a JOIN numbers b" +
				" WHERE a.n BETWEEN 1 AND ? AND a.n * 1000 + b.n < ?", []any{count / 1000, count},
		},
	}
}

// contacts returns the statements that fill that table.
func (s siteSize) contacts() (list []loading) {
	const insert = "INSERT INTO contacts (user_id, contact_id, is_friend, is_family) "
	for i, n := range s.Contacts {
		id, rest := s.viewer(i), n-stars
		list = append(list, loading{
			fmt.Sprintf("a viewer with %d contacts", n), insert + "SELECT ?, ? + n, 0, 0 FROM numbers WHERE n < ?", []any{id, firstStar, min(n, stars)},
		}, loading{
			"and back", insert + "SELECT ? + n, ?, MOD(n, 2), 0 FROM numbers WHERE n < ?", []any{firstStar, id, stars},
		})
		if rest > 0 {
			list = append(list, loading{
				"and the others", insert + "SELECT ?, ? + FLOOR(n * ? / ?), 0, 0 FROM numbers WHERE n < ?", []any{id, firstMember, s.Members, rest, rest},
			})
		}
	}
	for i, n := range s.Followers {
		list = append(list, loading{
			fmt.Sprintf("%d followers", n), insert + "SELECT ? + n, ?, 0, 0 FROM numbers WHERE n < ?", []any{s.firstFollower(), s.uploader(i), n},
		})
	}
	return append(list, loading{
		"contacts of the owners' viewers", insert + "SELECT v.id, o.id, 0, 0 FROM users v JOIN users o" +
			" WHERE v.id IN (?, ?) AND (o.id = v.id - ? OR o.id BETWEEN ? AND ?)",
		[]any{hiddenViewer, openViewer, hiddenViewer - hiddenOwner, firstOld, firstOld + olds - 1},
	}, loading{
		"a friend and family", insert + "SELECT ?, id, 0, 0 FROM users WHERE id = ? OR id BETWEEN ? AND ? UNION ALL SELECT ?, ?, 1, 1",
		[]any{closeViewer, firstStar, firstOld, firstOld + olds - 1, firstStar, closeViewer},
	}, loading{
		"a thousand contacts each", insert + "SELECT v.id, u.id, 0, 0 FROM users v JOIN users u" +
			" WHERE v.id IN (?, ?, ?) AND u.id BETWEEN ? AND ? OR v.id IN (?, ?, ?) AND u.id BETWEEN ? AND ?" +
			" OR v.id = ? AND u.id BETWEEN ? AND ? OR v.id = ? AND u.id BETWEEN ? AND ? OR v.id = ? AND u.id BETWEEN ? AND ?",
		[]any{
			privateViewer, countedViewer, plainViewer, firstStar, firstStar + stars - 1,
			privateViewer, countedViewer, plainViewer, firstMember, firstMember + crowdSize - privates - stars - 1,
			privateViewer, firstPrivate, firstPrivate + privates - 1, countedViewer, firstCounted, firstCounted + privates - 1,
			plainViewer, firstMember + crowdSize - privates - stars, firstMember + crowdSize - stars - 1,
		},
	}, loading{
		"10 to 100 contacts of ordinary members", insert + "SELECT ? + m.n, ? + MOD(m.n * 31 + k.n * ?, ?), MOD(m.n + k.n, 5) = 0, MOD(m.n + k.n, 7) = 0" +
			" FROM numbers m JOIN numbers k ON k.n < 10 + MOD(m.n * 7919, 91) WHERE m.n < ?",
		[]any{firstMember, firstMember, s.stride(), s.Members, s.Refills},
	})
}

func (s siteSize) photos() []loading {
	const insert = "INSERT INTO photos (owner_id, title, visibility, date_upload) "
	return []loading{
		{
			fmt.Sprintf("%d photos", s.Members*s.Photos), insert + "SELECT ? + m.n, CONCAT('photo ', k.n, ' of ', m.n)," +
				" CASE MOD(CRC32(CONCAT(m.n, '-', k.n)), 20) WHEN 0 THEN 'private' WHEN 1 THEN 'friends' WHEN 2 THEN 'family' WHEN 3 THEN 'friends_family' ELSE 'public' END, " +
				newestOf + " - k.n * 864000 FROM numbers m JOIN numbers k ON k.n < ? WHERE m.n < ?", []any{firstMember, s.Photos, s.Members},
		},
		{
			"photos of stars", insert + "SELECT u.id, CONCAT('shot ', n)," +
				" CASE MOD(n, 6) WHEN 2 THEN 'friends_family' WHEN 3 THEN 'friends' WHEN 4 THEN 'family' WHEN 5 THEN 'private' ELSE 'public' END, u.last_upload - n * 10" +
				" FROM users u JOIN numbers ON n < ? WHERE u.id BETWEEN ? AND ?", []any{starShots, firstStar, firstStar + stars - 1},
		},
		{
			"public photos of the two owners, and of the uploaders", insert + "SELECT u.id, CONCAT('shot ', n), 'public', IF(u.id = ?, ?, u.last_upload) - n * 10" +
				" FROM users u JOIN numbers ON n < ? WHERE u.id IN (?, ?) OR u.id BETWEEN ? AND ?",
			[]any{hiddenOwner, epoch, starShots, hiddenOwner, openOwner, firstUploader, firstUploader + len(s.Followers) - 1},
		},
		{
			"ten photos of each member who uploads in private only", insert + "SELECT u.id, CONCAT('secret ', n), 'private', ? + MOD(u.id, 1000) - n * 10" +
				" FROM users u JOIN numbers ON n < 10 WHERE u.id BETWEEN ? AND ? OR u.id BETWEEN ? AND ?",
			[]any{epoch + 11_000_000, firstPrivate, firstPrivate + privates - 1, firstCounted, firstCounted + privates - 1},
		},
		{
			fmt.Sprintf("%d private photos", s.Private), insert + "SELECT ?, CONCAT('secret ', n), 'private', ? + n FROM numbers WHERE n BETWEEN 1 AND ?",
			[]any{hiddenOwner, epoch, s.Private},
		},
	}
}

// setLastUpload sets a member's last upload.
func setLastUpload(ctx context.Context, db *sql.DB, id, at uint64) error {
	_, err := db.ExecContext(ctx, "UPDATE users SET last_upload = ? WHERE id = ?", at, id)
	return err
}
