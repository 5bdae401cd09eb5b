package push_test

import (
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/push"
)

func imported(id member.ID, address int, registered int64) push.Imported {
	d := push.Imported{Member: id, Platform: push.FCM, Address: token(address), Language: fmt.Sprintf("l%d", registered%10)}
	if registered > 0 {
		d.Registered = time.Unix(registered, 0)
	}
	return d
}

// devicesOf are the live devices, by address.
func devicesOf(t tester, db *sql.DB) string {
	var all sql.NullString
	must(t, db.QueryRow("SELECT GROUP_CONCAT(CONCAT_WS(' ', member_id, JSON_UNQUOTE(JSON_EXTRACT(address, '$.token')), registered_at / 1000, language)"+
		" ORDER BY address_hash SEPARATOR '\n') FROM push_devices WHERE gone_at IS NULL").Scan(&all))
	return all.String
}

func TestImport(t *testing.T) {
	t.Parallel()
	store, db := openStore(t)
	here := register(t, store, 1, token(1))
	gone := register(t, store, 1, token(2))
	_, err := store.Prune(t.Context(), []push.Pruned{{Device: gone.ID, Reason: "gone"}})
	must(t, err)
	old := register(t, store, 1, token(3))
	goneLong := register(t, store, 1, token(4))
	exec(t, db, "UPDATE push_devices SET registered_at = 1000000 WHERE id = ?", old.ID)
	exec(t, db, "UPDATE push_devices SET registered_at = 1000000, gone_at = 2000000, gone_reason = 'x', address = JSON_OBJECT() WHERE id = ?", goneLong.ID)
	for range 2 { // a repetition does no harm
		exec(t, db, "UPDATE push_devices SET member_id = 1, registered_at = 1000000, language = '' WHERE id = ?", old.ID)
		became, err := store.Import(t.Context(), []push.Imported{
			imported(2, 1, 5000),  // was registered since
			imported(2, 2, 5000),  // is gone since
			imported(2, 3, 5000),  // moves
			imported(2, 4, 1500),  // was gone since
			imported(2, 5, 0),     // it is not known when
			imported(99, 6, 5000), // nobody's
			imported(2, 7, 6000),  // the first of two, which is the later one
			imported(3, 7, 5000),  //
			imported(3, 8, 5000),  // and which is the earlier one
			imported(2, 8, 6001),  //
			imported(3, 5, 0),     // neither
			imported(2, 9, 1<<40), // in the far future
		})
		must(t, err)
		want := []push.Import{
			push.ImportKnown, push.ImportKnown, push.ImportReplaced, push.ImportKnown, push.ImportAdded, push.ImportNoMember,
			push.ImportAdded, push.ImportKnown, push.ImportKnown, push.ImportAdded, push.ImportKnown, push.ImportAdded,
		}
		if devices, err := store.Devices(t.Context(), 2); err != nil || len(devices) != 5 {
			t.Errorf("%d devices, %v", len(devices), err)
		}
		if got := became; got[4] == push.ImportKnown { // the second time
			for i := range want {
				if want[i] == push.ImportAdded {
					want[i] = push.ImportKnown
				}
			}
		}
		if diff := cmp.Diff(want, became); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if got := idsOf(t, store, 1); !slices.Equal(got, []uint64{here.ID}) {
		t.Errorf("of the first member are left %d", got)
	}
	devices, err := store.Devices(t.Context(), 2)
	must(t, err)
	if d := devices[0]; d.ID != old.ID || d.Language != "l0" || !d.Registered.Equal(time.Unix(5000, 0)) {
		t.Errorf("moved: %+v", d)
	}
	at := slices.IndexFunc(devices, func(d push.Device) bool { return tokenOf(d.Address) == tokenOf(token(5)) })
	if d := devices[at]; !d.Registered.Equal(time.Unix(1, 0)) {
		t.Errorf("of unknown age: %+v", d)
	}
	// What Apple says of an imported device counts.
	if n, err := store.Prune(t.Context(), []push.Pruned{{Device: devices[at].ID, Reason: "gone", Since: time.Unix(100, 0)}}); err != nil || n != 1 {
		t.Errorf("pruned %d, %v", n, err)
	}
}

// However the registrations are divided into batches, repeated and ordered, the latest of each address counts.
func TestPropertyImport(t *testing.T) {
	t.Parallel()
	store, db := openStore(t)
	rapid.Check(t, func(t *rapid.T) {
		exec(t, db, "DELETE FROM push_devices")
		latest := map[int]push.Imported{}
		var all []push.Imported
		for registered := range int64(rapid.IntRange(1, 20).Draw(t, "registrations")) {
			address := rapid.IntRange(1, 6).Draw(t, "address")
			d := imported(member.ID(rapid.IntRange(1, 3).Draw(t, "member")), address, registered+1000)
			all, latest[address] = append(all, d), d
		}
		for range 2 {
			for some := range slices.Chunk(rapid.Permutation(all).Draw(t, "order"), rapid.IntRange(1, 20).Draw(t, "batch")) {
				_, err := store.Import(t.Context(), some)
				must(t, err)
			}
		}
		for address, want := range latest {
			var id, registered uint64
			must(t, db.QueryRow("SELECT member_id, registered_at FROM push_devices WHERE JSON_UNQUOTE(JSON_EXTRACT(address, '$.token')) = ?", tokenOf(want.Address)).Scan(&id, &registered))
			if member.ID(id) != want.Member || int64(registered) != want.Registered.UnixMilli() {
				t.Errorf("address %d is of member %d since %d, want %+v", address, id, registered, want)
			}
		}
		var n int
		must(t, db.QueryRow("SELECT COUNT(*) FROM push_devices").Scan(&n))
		if n != len(latest) {
			t.Errorf("%d devices, want %d", n, len(latest))
		}
	})
}

// A member keeps the latest devices, the same ones when all are imported again.
func TestImportOfTooMany(t *testing.T) {
	t.Parallel()
	store, db := openStore(t)
	live := register(t, store, 1, token(0))
	var batch []push.Imported
	for i := 1; i <= push.MaxDevices+9; i++ {
		batch = append(batch, imported(1, i, int64(i%2*1000))) // half of them of unknown age
	}
	var states []string
	for range 2 {
		excess := 0
		for some := range slices.Chunk(batch, 25) {
			became, err := store.Import(t.Context(), some)
			must(t, err)
			for _, b := range became {
				if b == push.ImportExcess {
					excess++
				}
			}
		}
		if got := idsOf(t, store, 1); len(got) != push.MaxDevices || got[0] != live.ID || excess == 0 {
			t.Errorf("%d devices, the first is %d, %d in excess", len(got), got[0], excess)
		}
		states = append(states, devicesOf(t, db))
	}
	if states[0] != states[1] {
		t.Errorf("imported again: %s\nbefore: %s", states[1], states[0])
	}
}

// Batches and registrations of the same addresses at the same time make one device of each.
func TestImportsAtOnce(t *testing.T) {
	t.Parallel()
	store, db := openStore(t)
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			var batch []push.Imported
			for address := range 200 {
				batch = append(batch, imported(member.ID(1+i%3), address, int64(1000+i)))
			}
			if i%2 == 0 {
				slices.Reverse(batch)
			}
			if _, err := store.Import(t.Context(), batch[:100+20*i]); err != nil {
				t.Error(err)
			}
			if _, err := store.Register(t.Context(), 3, push.FCM, token(300+i/2)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	var devices, most int
	must(t, db.QueryRow("SELECT COUNT(*) FROM push_devices").Scan(&devices))
	must(t, db.QueryRow("SELECT MAX(n) FROM (SELECT COUNT(*) AS n FROM push_devices GROUP BY member_id) AS counted").Scan(&most))
	if most > push.MaxDevices || devices < push.MaxDevices {
		t.Errorf("%d devices, of one member %d", devices, most)
	}
}
