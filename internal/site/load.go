package site

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/activityd/activityd/internal/member"
)

// rowsPerInsert keeps a statement well below a server's max_allowed_packet.
const rowsPerInsert = 1000

// LoadMembers implements [Site].
func (s *MySQL) LoadMembers(ctx context.Context, members []Member) error {
	for some := range slices.Chunk(members, rowsPerInsert) {
		var args []any
		for _, m := range some {
			args = append(args, m.ID, m.Username)
		}
		text := `INSERT INTO users (id, username) VALUES ` + rowsOf("(?,?)", len(some)) +
			` ON DUPLICATE KEY UPDATE username = VALUES(username)`
		if err := s.change(ctx, fmt.Sprintf("loading %d members", len(some)), []statement{{text, args}}); err != nil {
			return err
		}
	}
	return nil
}

// LoadContacts implements [Site].
func (s *MySQL) LoadContacts(ctx context.Context, relations []Relation) error {
	for some := range slices.Chunk(relations, rowsPerInsert) {
		var args []any
		for _, r := range some {
			args = append(args, r.User, r.Contact, r.Grant.Friend, r.Grant.Family)
		}
		text := `INSERT INTO contacts (user_id, contact_id, is_friend, is_family) VALUES ` + rowsOf("(?,?,?,?)", len(some)) +
			` ON DUPLICATE KEY UPDATE is_friend = VALUES(is_friend), is_family = VALUES(is_family)`
		if err := s.change(ctx, fmt.Sprintf("loading %d contacts", len(some)), []statement{{text, args}}); err != nil {
			return err
		}
	}
	return nil
}

// LoadPhotos implements [Site].
func (s *MySQL) LoadPhotos(ctx context.Context, photos []Photo) error {
	for some := range slices.Chunk(photos, rowsPerInsert) {
		var args []any
		for _, p := range some {
			args = append(args, orNull(p.ID), p.Owner, p.Title, string(p.Visibility), p.DateUpload)
		}
		err := s.change(ctx, fmt.Sprintf("loading %d photos", len(some)), []statement{
			{`INSERT INTO photos (id, owner_id, title, visibility, date_upload) VALUES ` + rowsOf("(?,?,?,?,?)", len(some)), args},
			dateOwners(some),
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// dateOwners moves the last uploads of the photos' owners forward.
func dateOwners(photos []Photo) statement {
	newest := map[member.ID]uint64{}
	for _, p := range photos {
		newest[p.Owner] = max(newest[p.Owner], p.DateUpload)
	}
	list := make([][2]uint64, 0, len(newest))
	for owner, date := range newest {
		list = append(list, [2]uint64{uint64(owner), date})
	}
	encoded, err := json.Marshal(list)
	if err != nil {
		panic(fmt.Sprintf("site: encoding numbers: %v", err)) // numbers always can be
	}
	return statement{`
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$[0]', date BIGINT UNSIGNED PATH '$[1]')) AS q
JOIN users u ON u.id = q.id
SET u.last_upload = GREATEST(COALESCE(u.last_upload, 0), q.date)`, []any{string(encoded)}}
}

// rowsOf repeats the placeholders of one row.
func rowsOf(row string, n int) string {
	return strings.Join(slices.Repeat([]string{row}, n), ",")
}
