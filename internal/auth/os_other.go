//go:build !unix

package auth

import "io/fs"

// ownerOf does not know where files have no owner and mode of the usual kind.
func ownerOf(fs.FileInfo) (owner, self int, known bool) { return 0, 0, false }
