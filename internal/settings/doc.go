// Package settings is how an operator tells a program what to do. A setting is a [pflag.Flag]. Its
// value comes from the command line, from a variable of the environment, from a line of a file, or
// is its default: the first of these that there is. Some have no flag ([NoFlag]), so that a help
// shows what is changed every day.
//
// The file has the form that systemd's EnvironmentFile and shells read, too:
//
//	# a comment
//	ACTIVITYD_MYSQL_DSN='user:password@tcp(host:3306)/name'
//	ACTIVITYD_NEED=20
//
// A name that is no setting is refused there, with the nearest that is one. In the environment it
// is warned of: other programs use the prefix, too, as Kubernetes does for a service of this name.
package settings
