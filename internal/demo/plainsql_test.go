package demo_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/demo"
	"github.com/activityd/activityd/internal/localserver/servertest"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/site"
)

func TestPlainSQLGivesTheAnswerByDefinition(t *testing.T) {
	t.Parallel()
	db := servertest.MySQL(t)
	w := smallWorld()
	store := contacts.NewMemory()
	for _, s := range []site.Site{site.NewMySQL(db), &site.Memory{Store: store}} {
		if err := w.Load(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	plain, shown := demo.PlainSQL(db), 0
	for i := range w.Members {
		v := contacts.Viewer{ID: member.ID(i + 1)}
		want, err := store.Walk(t.Context(), v, 7)
		if err != nil {
			t.Fatal(err)
		}
		got, err := plain(t.Context(), v, 7)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want.Album, got); diff != "" {
			t.Errorf("viewer %d: plain SQL differs from the definition (-want +got):\n%s", v.ID, diff)
		}
		shown += len(got.Photos)
	}
	if shown == 0 {
		t.Error("no member sees anything in this world")
	}
}

func TestPlainSQLForUnknownMemberIsEmpty(t *testing.T) {
	t.Parallel()
	album, err := demo.PlainSQL(servertest.MySQL(t))(t.Context(), contacts.Viewer{ID: 1}, 10)
	if err != nil || album.Contact != nil || len(album.Photos) != 0 {
		t.Errorf("plain SQL on empty tables = %+v, %v", album, err)
	}
}

func TestPlainSQLReportsWhatWentWrong(t *testing.T) {
	t.Parallel()
	lost := errors.New("connection lost")
	columns := []string{"owner_id", "username", "id", "title", "date_upload"}
	for name, prepare := range map[string]func(*sqlmock.ExpectedQuery){
		"query": func(q *sqlmock.ExpectedQuery) { q.WillReturnError(lost) },
		"in the middle": func(q *sqlmock.ExpectedQuery) {
			q.WillReturnRows(sqlmock.NewRows(columns).AddRow(2, "b", 1, "x", 5).AddRow(2, "b", 2, "y", 4).RowError(1, lost))
		},
	} {
		db, mock, err := sqlmock.New()
		if err != nil {
			t.Fatal(err)
		}
		prepare(mock.ExpectQuery("WITH visible"))
		album, err := demo.PlainSQL(db)(t.Context(), contacts.Viewer{ID: 12}, 10)
		if !errors.Is(err, lost) || !strings.Contains(err.Error(), "member 12") || album.Contact != nil {
			t.Errorf("%s: %+v, %v", name, album, err)
		}
		mock.ExpectClose()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}
