package site

import (
	"context"
	"database/sql"
	"fmt"
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

// NewMySQL returns a site over db, which the caller closes.
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
		return execAll(ctx, tx, []statement{
			{
				`UPDATE users SET last_upload = GREATEST(COALESCE(last_upload, 0), ?) WHERE id = ?`,
				[]any{p.DateUpload, p.Owner},
			},
			{`INSERT INTO tasks (type, subject) VALUES ('upload', ?)`, []any{p.Owner}},
		})
	})
	return id, err
}

// SetVisibility implements [Site].
func (s *MySQL) SetVisibility(ctx context.Context, photoID uint64, v contacts.Visibility) error {
	return s.change(ctx, fmt.Sprintf("changing the visibility of photo %d", photoID), []statement{
		{`UPDATE photos SET visibility = ? WHERE id = ?`, []any{string(v), photoID}},
	})
}

// DeletePhoto implements [Site].
func (s *MySQL) DeletePhoto(ctx context.Context, photoID uint64) error {
	return s.change(ctx, fmt.Sprintf("deleting photo %d", photoID), []statement{
		{`DELETE FROM photos WHERE id = ?`, []any{photoID}},
	})
}

type statement struct {
	text string
	args []any
}

// change runs statements in one transaction.
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

// inTx runs do in a transaction, and again when the server gave it up in favour
// of another one.
func (s *MySQL) inTx(ctx context.Context, what string, do func(*sql.Tx) error) error {
	const attempts = 10
	var err error
	for attempt := range attempts {
		if attempt > 0 && retry.Sleep(ctx, retry.Backoff(attempt, 4*time.Millisecond, time.Second)) != nil {
			break
		}
		if err = s.once(ctx, do); !mysql.IsRetryable(err) {
			break
		}
	}
	return mysql.Translate(ctx, what, err)
}

func (s *MySQL) once(ctx context.Context, do func(*sql.Tx) error) error {
	tx, err := s.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		_ = tx.Rollback() // err says what matters
		return err
	}
	return tx.Commit()
}

// orNull makes the server choose an id in place of 0.
func orNull(id uint64) any {
	if id == 0 {
		return nil
	}
	return id
}
