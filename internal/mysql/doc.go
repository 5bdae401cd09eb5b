// Package mysql opens the site's database, MySQL or MariaDB, and has the means of all SQL against it.
//
// It promises to the statements of activityd:
//
//   - The session is the same on every server, whatever its defaults and the DSN say ([Open]).
//   - Each connection leads to the primary, and to a session of its own. After a failover no statement and no commit
//     reaches the server before.
//   - An error of the server has a meaning: try again, the server is away, a table or a right is missing
//     ([Translate]). No other package knows the numbers.
//   - A transaction that lost a deadlock is run again ([Transact]).
package mysql
