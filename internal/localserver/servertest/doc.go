// Package servertest gives tests real servers of their own: see package
// localserver for what they are. A package that uses it hands its tests over to
// [Main]:
//
//	func TestMain(m *testing.M) { servertest.Main(m) }
//
// What a test gets is empty, its own, and removed when the test ends, so that all
// tests may run in parallel:
//
//	db := servertest.MySQL(t)     // a database of its own with the schema
//	redis := servertest.Redis(t)  // a server of its own
//	m := servertest.OwnMySQL(t)   // a server of its own, to kill or to pause
//	p := servertest.NewProxy(t, redis.Addr()) // a connection to delay or to cut
//
// A server that is not installed fails the test, with a message that says what
// to install; it never skips it.
package servertest
