package contacts_test

import (
	"database/sql"
	"testing"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/testing/contactstest"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/internal/testing/site"
)

func TestMain(m *testing.M) { servertest.Main(m) }

func openMemory(*testing.T) (Store, site.Site) {
	store := contactstest.NewMemory()
	return store, &site.Memory{Store: store}
}

func openMySQL(t *testing.T) (Store, site.Site) {
	t.Helper()
	db := openDB(t)
	return contacts.NewMySQL(db), site.NewMySQL(db)
}

// openDB returns a fresh database, opened as the program opens it.
func openDB(t testing.TB, opts ...func(*sql.DB)) *sql.DB {
	t.Helper()
	db, err := mysql.Open(servertest.MySQLDSN(t), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// TestPrivacy is no parallel test, so that it runs before the parallel tests: a class that is shown to
// too many is found in the first seconds.
func TestPrivacy(t *testing.T) {
	for name, open := range map[string]func(*testing.T) (Store, site.Site){"Memory": openMemory, "MySQL": openMySQL} {
		for what, test := range map[string]func(*testing.T, world){"Photos": testPrivacy, "Details": testDetails} {
			t.Run(name+"/"+what, func(t *testing.T) {
				store, s := open(t)
				test(t, world{Store: store, site: s})
			})
		}
	}
	t.Run("MySQL/Sight", testSight)
	t.Run("MySQL/Sightings", testSightings)
}

func TestConformanceMemory(t *testing.T) {
	t.Parallel()
	testStore(t, openMemory)
}

func TestConformanceMySQL(t *testing.T) {
	t.Parallel()
	testStore(t, openMySQL)
}
