package localserver

import "strconv"

// Option changes how a server is started. Every option comes down to arguments
// on the server's command line, where they win over the defaults; a server that
// does not know one of them refuses to start.
type Option func() []string

// WithArgs adds arguments to the server's command line.
func WithArgs(args ...string) Option {
	return func() []string { return args }
}

// WithBufferPool sets MySQL's buffer pool, in bytes. The default is 64 MiB.
func WithBufferPool(bytes int64) Option {
	return WithArgs("--innodb-buffer-pool-size=" + strconv.FormatInt(bytes, 10))
}

// WithFlushLog sets MySQL's innodb_flush_log_at_trx_commit. The default, 1,
// keeps every committed transaction through a crash; 2 does so unless the
// machine itself crashes; 0 may lose the last second.
func WithFlushLog(level int) Option {
	return WithArgs("--innodb-flush-log-at-trx-commit=" + strconv.Itoa(level))
}

// WithAOF makes Redis keep its data: each write reaches the disk before its
// reply is sent. Without it Redis forgets everything when it stops.
func WithAOF() Option {
	return WithArgs("--appendonly", "yes", "--appendfsync", "always")
}

// arguments are the defaults followed by those of opts.
func arguments(defaults []string, opts []Option) []string {
	all := append([]string(nil), defaults...)
	for _, opt := range opts {
		all = append(all, opt()...)
	}
	return all
}
