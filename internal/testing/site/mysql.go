package site

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/retry"
)

// MySQL is a site over the tables of schema.sql. Its errors are those of
// [mysql.Translate].
type MySQL struct {
	// DB is the site's database, opened by [mysql.Open].
	DB *sql.DB
}

// NewMySQL returns a site over db. The caller closes db.
func NewMySQL(db *sql.DB) *MySQL { return &MySQL{DB: db} }

// AddMember implements [Site].
func (s *MySQL) AddMember(ctx context.Context, id member.ID, username string) error {
	return s.LoadMembers(ctx, []Member{{ID: id, Username: username}})
}

// DeleteMember implements [Site].
func (s *MySQL) DeleteMember(ctx context.Context, id member.ID) error {
	return s.change(ctx, fmt.Sprintf("deleting member %d", id), []statement{
		{`DELETE FROM users WHERE id = ?`, []any{id}},
		{
			`INSERT INTO tasks (type, subject, args)
SELECT 'remove_contact', user_id, JSON_OBJECT('contact_id', ?) FROM contacts WHERE contact_id = ?`,
			[]any{id.String(), id},
		},
		{`INSERT INTO tasks (type, queue, subject) VALUES ('refill', 'refill', ?)`, []any{id}},
		{`DELETE FROM contacts WHERE contact_id = ?`, []any{id}},
		{`DELETE FROM contacts WHERE user_id = ?`, []any{id}},
		{`DELETE FROM blocks WHERE user_id = ? OR blocked_id = ?`, []any{id, id}},
		{`DELETE FROM photos WHERE owner_id = ?`, []any{id}},
	})
}

// SetContact implements [Site].
func (s *MySQL) SetContact(ctx context.Context, user, contact member.ID, g Grant) error {
	return s.change(ctx, fmt.Sprintf("adding contact %d of member %d", contact, user), []statement{
		{
			`INSERT INTO contacts (user_id, contact_id, is_friend, is_family) VALUES (?, ?, ?, ?)
ON DUPLICATE KEY UPDATE is_friend = VALUES(is_friend), is_family = VALUES(is_family)`,
			[]any{user, contact, g.Friend, g.Family},
		},
		{
			`INSERT INTO tasks (type, subject, args) VALUES ('add_contact', ?, JSON_OBJECT('contact_id', ?))`,
			[]any{user, contact.String()},
		},
	})
}

// RemoveContact implements [Site].
func (s *MySQL) RemoveContact(ctx context.Context, user, contact member.ID) error {
	return s.change(ctx, fmt.Sprintf("removing contact %d of member %d", contact, user), []statement{
		{`DELETE FROM contacts WHERE user_id = ? AND contact_id = ?`, []any{user, contact}},
		{
			`INSERT INTO tasks (type, subject, args) VALUES ('remove_contact', ?, JSON_OBJECT('contact_id', ?))`,
			[]any{user, contact.String()},
		},
	})
}

// Block implements [Site].
func (s *MySQL) Block(ctx context.Context, user, blocked member.ID) error {
	return s.change(ctx, fmt.Sprintf("blocking member %d for member %d", blocked, user), []statement{
		{
			`INSERT INTO blocks (user_id, blocked_id) VALUES (?, ?) ON DUPLICATE KEY UPDATE user_id = user_id`,
			[]any{user, blocked},
		},
	})
}

// Unblock implements [Site].
func (s *MySQL) Unblock(ctx context.Context, user, blocked member.ID) error {
	return s.change(ctx, fmt.Sprintf("unblocking member %d for member %d", blocked, user), []statement{
		{`DELETE FROM blocks WHERE user_id = ? AND blocked_id = ?`, []any{user, blocked}},
	})
}

// Upload implements [Site].
func (s *MySQL) Upload(ctx context.Context, p Photo) (uint64, error) {
	id := p.ID
	err := s.inTx(ctx, fmt.Sprintf("uploading a photo of member %d", p.Owner), func(tx *sql.Tx) error {
		added, err := tx.ExecContext(ctx,
			`INSERT INTO photos (id, owner_id, title, visibility, date_upload) VALUES (?, ?, ?, ?, ?)`,
			orNull(p.ID), p.Owner, p.Title, string(p.Visibility), p.DateUpload)
		if err != nil {
			return err
		}
		if p.ID == 0 {
			last, err := added.LastInsertId()
			if err != nil {
				return err
			}
			id = uint64(last) // the driver returns the unsigned id's 64 bits
		}
		var statements []statement
		if p.Visibility != contacts.Private {
			statements = uploaded(p.Owner, p.DateUpload)
		}
		if p.Notify != "" {
			statements = append(statements, statement{`INSERT INTO tasks (queue, type, subject, args) VALUES ('push', 'notify', ?, ?)`, []any{p.Owner, p.Notify}})
		}
		return execAll(ctx, tx, statements)
	})
	return id, err
}

// uploaded returns the statements for a photo of owner that becomes visible to other members.
func uploaded(owner member.ID, date uint64) []statement {
	return []statement{
		{`UPDATE users SET last_upload = GREATEST(COALESCE(last_upload, 0), ?) WHERE id = ?`, []any{date, owner}},
		{`INSERT INTO tasks (type, subject) VALUES ('upload', ?)`, []any{owner}},
	}
}

// SetVisibility implements [Site].
func (s *MySQL) SetVisibility(ctx context.Context, photoID uint64, v contacts.Visibility) error {
	return s.inTx(ctx, fmt.Sprintf("changing the visibility of photo %d", photoID), func(tx *sql.Tx) error {
		statements := []statement{{`UPDATE photos SET visibility = ? WHERE id = ?`, []any{string(v), photoID}}}
		var owner member.ID
		var before string
		var date uint64
		const query = `SELECT owner_id, visibility, date_upload FROM photos WHERE id = ? FOR UPDATE`
		switch err := tx.QueryRowContext(ctx, query, photoID).Scan(&owner, &before, &date); {
		case errors.Is(err, sql.ErrNoRows):
			return nil
		case err != nil:
			return err
		case before == string(contacts.Private) && v != contacts.Private:
			statements = append(uploaded(owner, date), statements...)
		}
		return execAll(ctx, tx, statements)
	})
}

// DeletePhoto implements [Site].
func (s *MySQL) DeletePhoto(ctx context.Context, photoID uint64) error {
	return s.change(ctx, fmt.Sprintf("deleting photo %d", photoID), []statement{
		{`DELETE FROM photos WHERE id = ?`, []any{photoID}},
	})
}

// LoadMembers implements [Site].
func (s *MySQL) LoadMembers(ctx context.Context, members []Member) error {
	return load(ctx, s, "members", members, func(some []Member) []statement {
		return insert(some, `INSERT INTO users (id, username)`, ` ON DUPLICATE KEY UPDATE username = VALUES(username)`,
			func(m Member) []any { return []any{m.ID, m.Username} })
	})
}

// LoadContacts implements [Site].
func (s *MySQL) LoadContacts(ctx context.Context, relations []Relation) error {
	return load(ctx, s, "contacts", relations, func(some []Relation) []statement {
		return insert(some, `INSERT INTO contacts (user_id, contact_id, is_friend, is_family)`,
			` ON DUPLICATE KEY UPDATE is_friend = VALUES(is_friend), is_family = VALUES(is_family)`,
			func(r Relation) []any { return []any{r.User, r.Contact, r.Grant.Friend, r.Grant.Family} })
	})
}

// LoadPhotos implements [Site].
func (s *MySQL) LoadPhotos(ctx context.Context, photos []Photo) error {
	return load(ctx, s, "photos", photos, func(some []Photo) []statement {
		return append(insert(some, `INSERT INTO photos (id, owner_id, title, visibility, date_upload)`, "",
			func(p Photo) []any { return []any{orNull(p.ID), p.Owner, p.Title, string(p.Visibility), p.DateUpload} }),
			dateOwners(some))
	})
}

// load loads rows in parts, each in a transaction: a statement keeps well below the server's max_allowed_packet.
func load[R any](ctx context.Context, s *MySQL, what string, rows []R, by func(some []R) []statement) error {
	for some := range slices.Chunk(rows, 1000) {
		if err := s.change(ctx, fmt.Sprintf("loading %d %s", len(some), what), by(some)); err != nil {
			return err
		}
	}
	return nil
}

// insert returns a statement that inserts rows.
func insert[R any](rows []R, into, end string, args func(R) []any) []statement {
	var all []any
	for _, r := range rows {
		all = append(all, args(r)...)
	}
	row := "(?" + strings.Repeat(",?", len(all)/len(rows)-1) + ")"
	return []statement{{into + " VALUES " + row + strings.Repeat(","+row, len(rows)-1) + end, all}}
}

// dateOwners moves the last uploads of the photos' owners forward, but for private photos.
func dateOwners(photos []Photo) statement {
	newest := map[member.ID]uint64{}
	for _, p := range photos {
		if p.Visibility != contacts.Private {
			newest[p.Owner] = max(newest[p.Owner], p.DateUpload)
		}
	}
	list := make([][2]uint64, 0, len(newest))
	for owner, date := range newest {
		list = append(list, [2]uint64{uint64(owner), date})
	}
	encoded, err := json.Marshal(list)
	if err != nil {
		panic(fmt.Sprintf("site: encoding numbers: %v", err)) // cannot fail
	}
	return statement{`
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$[0]', date BIGINT UNSIGNED PATH '$[1]')) AS q
JOIN users u ON u.id = q.id
SET u.last_upload = GREATEST(COALESCE(u.last_upload, 0), q.date)`, []any{string(encoded)}}
}

type statement struct {
	text string
	args []any
}

// change runs statements in a transaction.
func (s *MySQL) change(ctx context.Context, what string, statements []statement) error {
	return s.inTx(ctx, what, func(tx *sql.Tx) error { return execAll(ctx, tx, statements) })
}

func execAll(ctx context.Context, tx *sql.Tx, statements []statement) error {
	for _, st := range statements {
		if _, err := tx.ExecContext(ctx, st.text, st.args...); err != nil {
			return err
		}
	}
	return nil
}

// inTx runs do in a transaction, and again after a deadlock. Unlike [mysql.Transact] it has the isolation of
// most back-ends, REPEATABLE READ.
func (s *MySQL) inTx(ctx context.Context, what string, do func(*sql.Tx) error) error {
	const maxAttempts = 10
	for attempt := 1; ; attempt++ {
		err := s.once(ctx, do)
		if attempt == maxAttempts || !mysql.IsRetryable(err) {
			return mysql.Translate(ctx, what, err)
		}
		if err := retry.Sleep(ctx, retry.Backoff(attempt, 4*time.Millisecond, time.Second)); err != nil {
			return mysql.Translate(ctx, what, err)
		}
	}
}

func (s *MySQL) once(ctx context.Context, do func(*sql.Tx) error) error {
	tx, err := s.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		_ = tx.Rollback() // err is the cause
		return err
	}
	return tx.Commit()
}

// orNull turns the id 0 into NULL, so that the server chooses an id.
func orNull(id uint64) any {
	if id == 0 {
		return nil
	}
	return id
}
