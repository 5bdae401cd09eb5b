package servertest

import (
	"slices"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
)

// hostile are defaults of session variables: a program that does not set its
// session up gives wrong answers under them. Each is a SET GLOBAL of its own.
var hostile = []string{
	"completion_type = 'CHAIN'",
	"max_join_size = 1",
	"sql_big_selects = 0",
	"sql_select_limit = 1",
	"sql_safe_updates = 1",
	"sql_auto_is_null = 1",
	"sql_buffer_result = 1",
	"sql_quote_show_create = 0",
	"foreign_key_checks = 0",
	"unique_checks = 0",
	"max_sort_length = 8",
	"max_error_count = 0",
	"time_zone = '-11:00'",
	"character_set_client = latin1",
	"character_set_connection = latin1",
	"character_set_results = latin1",
	"character_set_server = latin1",
	"collation_connection = latin1_german2_ci",
	"group_concat_max_len = 4",
	"div_precision_increment = 0",
	"default_storage_engine = MyISAM",
	"explicit_defaults_for_timestamp = 0",
	"auto_increment_increment = 7",
	"auto_increment_offset = 3",
	"innodb_strict_mode = 0",
	"innodb_table_locks = 0",
	"innodb_lock_wait_timeout = 1",
	"low_priority_updates = 1",
	"updatable_views_with_limit = 0",
	"big_tables = 1",
	"session_track_schema = 0",
	"session_track_state_change = 1",
}

var hostileMariaDB = []string{
	"sql_mode = 'ORACLE,ANSI_QUOTES,PIPES_AS_CONCAT,NO_BACKSLASH_ESCAPES,HIGH_NOT_PRECEDENCE,NO_UNSIGNED_SUBTRACTION,PAD_CHAR_TO_FULL_LENGTH," +
		"NO_AUTO_VALUE_ON_ZERO,IGNORE_SPACE,REAL_AS_FLOAT,ONLY_FULL_GROUP_BY,EMPTY_STRING_IS_NULL,SIMULTANEOUS_ASSIGNMENT,TIME_ROUND_FRACTIONAL'",
	"query_cache_type = 'ON'",
	"system_versioning_asof = '2001-01-01 00:00:00'",
	"sql_if_exists = 1",
	"check_constraint_checks = 0",
	"in_predicate_conversion_threshold = 2",
	"old_mode = 'NO_DUP_KEY_WARNINGS_WITH_IGNORE,ZERO_DATE_TIME_CAST'",
	"standard_compliant_cte = 0",
	"wsrep_dirty_reads = 1",
}

var hostileMySQL = []string{
	"sql_mode = 'ANSI_QUOTES,PIPES_AS_CONCAT,NO_BACKSLASH_ESCAPES,HIGH_NOT_PRECEDENCE,NO_UNSIGNED_SUBTRACTION,PAD_CHAR_TO_FULL_LENGTH," +
		"NO_AUTO_VALUE_ON_ZERO,IGNORE_SPACE,REAL_AS_FLOAT,ONLY_FULL_GROUP_BY,TIME_TRUNCATE_FRACTIONAL'",
	"default_collation_for_utf8mb4 = utf8mb4_general_ci",
	"sql_require_primary_key = 1",
	"sql_generate_invisible_primary_key = 1",
	"information_schema_stats_expiry = 0",
	"session_track_transaction_info = 'CHARACTERISTICS'",
}

// HostileMySQL returns the DSN of an empty database on a server of t's own, whose
// defaults of session variables, and whose init_connect, are all set against a
// program that relies on the usual ones. The DSN's user has all rights to the
// database and none beyond, so that init_connect runs for it.
func HostileMySQL(t testing.TB) (dsn string) {
	t.Helper()
	m := startMySQL(t, "--innodb-flush-log-at-trx-commit=2",
		"--loose-skip-character-set-client-handshake", "--loose-query-cache-type=1", "--loose-query-cache-size=1048576")
	own, ofSession := hostileMySQL, ", use_secondary_engine = FORCED"
	if strings.Contains(m.Version(), "MariaDB") {
		own, ofSession = hostileMariaDB, ""
	}
	statements := []string{
		"CREATE DATABASE " + Database + " CHARACTER SET utf8mb4",
		"CREATE USER site@localhost",
		"GRANT ALL ON " + Database + ".* TO site@localhost",
	}
	for _, assignment := range slices.Concat(hostile, own) {
		statements = append(statements, "SET GLOBAL "+assignment)
	}
	statements = append(statements,
		"SET GLOBAL init_connect = 'SET NAMES latin1, autocommit = 0, sql_select_limit = 3, sql_safe_updates = 1, timestamp = 1000000000"+ofSession+"'",
		"SET GLOBAL autocommit = 0",
		"SET GLOBAL TRANSACTION ISOLATION LEVEL READ UNCOMMITTED, READ ONLY")
	// On one connection: defaults that are changed on the way do not reach it.
	db := open(t, m.DSN(""))
	db.SetMaxOpenConns(1)
	for _, statement := range statements {
		exec(t, db, statement)
	}
	cfg, err := mysql.ParseDSN(m.DSN(Database))
	if err != nil {
		t.Fatalf("servertest: %v", err)
	}
	cfg.User = "site"
	return cfg.FormatDSN()
}
