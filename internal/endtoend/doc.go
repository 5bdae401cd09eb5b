// Package endtoend holds the tests of the whole: the index, the handlers, the
// queue and the read together, as several processes run them, on real MariaDB
// and Redis servers, while the site changes, members read and servers fail. It
// has no code of its own.
//
// What is expected is stated twice, and both times without the code that it
// judges: the sets are held against I1 to I4 of package index by plain SQL
// written here, and the answers against the definition as site.ContactsFirst puts it. Of
// notifications, what fake push services accepted is held against what the test knows of
// events, devices, wishes and photos, and when each changed.
//
// The changes are random. A test that fails prints its seed, and
//
//	ACTIVITYD_SEED=1234 go test -race ./internal/endtoend
//
// makes the same choices again; "make chaos DURATION=10m" sets ACTIVITYD_CHAOS, how
// long TestChaos goes on, "make chaos-push KILLS=1000" ACTIVITYD_KILLS, for
// TestPushChaos, and "make chaos-mysql FAILOVERS=20" ACTIVITYD_FAILOVERS, for
// TestMySQLFailsOver. How the goroutines interleave is not repeated.
package endtoend
