package push_test

import (
	"testing"
	"time"

	"github.com/activityd/activityd/internal/push"
)

func TestLookSmoke(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	store := push.NewMySQL(db)
	exec(t, db, "INSERT INTO users (id, username) VALUES (1, 'ada'), (2, 'bob'), (18446744073709551614, 'eve')")
	exec(t, db, "INSERT INTO photos (id, owner_id, visibility, date_upload) VALUES (901, 1, 'public', 5)")
	var devices []push.Device
	for _, id := range []uint64{2, 18446744073709551614, 1} {
		d, err := store.Register(t.Context(), memberID(id), push.FCM, push.Address{Token: memberID(id).String()})
		if err != nil {
			t.Fatal(err)
		}
		devices = append(devices, d)
	}
	stored, err := store.StoreEvents(t.Context(), []push.NewEvent{
		{Task: 5, Created: time.Now(), Event: push.Event{ID: "e", Type: "upload", Actor: 1, Object: "photo:901", Followers: true}},
	})
	if err != nil {
		t.Fatal(err)
	}
	facts, err := store.Look(t.Context(), []push.Candidate{
		{Event: stored[0].Number, Member: 2}, {Event: stored[0].Number, Member: 18446744073709551614},
		{Event: stored[0].Number, Member: 1, Device: devices[2].ID}, {Event: stored[0].Number, Member: 1, Device: 77},
	})
	if err != nil || len(facts) != 3 {
		t.Fatalf("%v, %v", facts, err)
	}
	for i, f := range facts {
		t.Logf("%+v %+v", f, devices[i])
	}
}
