//go:build !unix || solaris || illumos || aix

package filelock

import "os"

// NoFollow is no flag where there is none that has [Open] fail at a symbolic link.
const NoFollow = 0

func lock(*os.File) error { return nil }
