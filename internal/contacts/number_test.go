package contacts_test

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/testing/contactstest"
)

func TestNumbersAsDriversReturnThem(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		value any
		want  contacts.Number
	}{
		{int64(7), 7},
		{uint64(math.MaxUint64), math.MaxUint64},
		{[]byte("18446744073709551615"), math.MaxUint64},
		{"42", 42},
		{int64(0), 0},
		{int64(-1), 0},
		{[]byte("-1"), 0},
		{"-9223372036854775808", 0},
	} {
		got := contacts.Number(1)
		if err := got.Scan(c.value); err != nil || got != c.want {
			t.Errorf("%v (%T): %d, %v, want %d", c.value, c.value, got, err, c.want)
		}
	}
	for _, value := range []any{nil, "", "-", "-1.5", "18446744073709551616", 1.5, true} {
		var got contacts.Number
		if err := got.Scan(value); err == nil {
			t.Errorf("%v (%T) is read as %d, want an error", value, value, got)
		}
	}
}

// TestDatesBelowZero: dates of signed columns that are below 0 are 0 in each answer, of rows that are
// prepared and of plain statements.
func TestDatesBelowZero(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	store, memory := contacts.NewMySQL(db), contactstest.NewMemory()
	for _, text := range []string{
		"ALTER TABLE users MODIFY last_upload BIGINT NULL", "ALTER TABLE photos MODIFY date_upload BIGINT NOT NULL",
		"INSERT INTO users (id, username, last_upload) VALUES (1, '', NULL), (2, '', 5), (3, '', -1)",
		"INSERT INTO contacts (user_id, contact_id) VALUES (1, 2), (1, 3)",
		"INSERT INTO photos (id, owner_id, visibility, date_upload) VALUES (20, 2, 'public', -3600), (21, 2, 'followers', -1), (22, 2, 'friends', 5), (30, 3, 'private', -1)",
	} {
		if _, err := db.ExecContext(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []member.ID{1, 2, 3} {
		memory.AddMember(id, "")
	}
	memory.SetLastUpload(2, 5)
	memory.SetContact(1, 2, false, false)
	memory.SetContact(1, 3, false, false)
	for id, class := range map[uint64]contacts.Visibility{20: contacts.Public, 21: contacts.Followers} {
		memory.AddPhoto(id, 2, "", class, 0)
	}
	memory.AddPhoto(22, 2, "", contacts.Friends, 5)
	memory.AddPhoto(30, 3, "", contacts.Private, 0)
	rapid.Check(t, func(t *rapid.T) { compare(t, t.Context(), memory, store) })
	newest, err := store.Newest(t.Context(), []member.ID{2, 3})
	equal(t, "Newest", newest, err, map[member.ID]contacts.Newest{2: {LastUpload: 5, Photo: 5}, 3: {}})
	seen, err := store.Sightings(t.Context(), viewer(1), []uint64{21, 30})
	if err != nil || seen[0].DateUpload != 0 || seen[0].Hidden != "" || seen[1].LastUpload != 0 {
		t.Errorf("Sightings: %+v, %v", seen, err)
	}
}
