// Package settings reads the settings of a program. A setting is a [pflag.Flag]. Its value comes
// from the command line, the environment, a file, or its default: the first source that has it
// wins. A setting without a flag ([NoFlag]) keeps the help short: the help shows the settings that
// change every day.
//
// The file has the form that systemd's EnvironmentFile and shells read, too:
//
//	# a comment
//	ACTIVITYD_MYSQL_DSN='user:password@tcp(host:3306)/name'
//	ACTIVITYD_NEED=20
//
// An unknown name in the file is an error. An unknown name in the environment causes a warning:
// other programs use the prefix, too, as Kubernetes does for a service of this name.
package settings
