// Package mysql opens the site's database, MySQL or MariaDB, and has what all SQL
// against it shares: the session that the statements rely on, what an error of the
// server means, transactions that are repeated after a deadlock, prepared statements,
// and the database's clock. The driver's error numbers are known here alone.
package mysql
