// Package endtoend holds the tests of the whole: the index, the handlers, the queue and the read together, as
// several processes run them, on real MariaDB and Redis servers, while the site changes, members read and
// servers fail. It has no code of its own.
//
// The tests state the expectation twice, and both times without the code that it judges. Plain SQL in this
// package compares the sets with I1 to I4 of package index. The definition in site.ContactsFirst judges the
// answers. For notifications, the tests compare the messages that fake push services accepted with their own
// record of events, devices, settings and photos, and of the times of changes.
//
// The changes are random. A test that fails prints its seed, and
//
//	ACTIVITYD_SEED=1234 go test -race ./internal/endtoend
//
// makes the same choices again; "make chaos DURATION=10m" sets ACTIVITYD_CHAOS, how long TestChaos goes on,
// "make chaos-push KILLS=1000" ACTIVITYD_KILLS, for TestPushChaos, and "make chaos-mysql FAILOVERS=20"
// ACTIVITYD_FAILOVERS, for TestMySQLFailsOver. A seed does not repeat the interleaving of goroutines.
package endtoend
