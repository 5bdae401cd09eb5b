package auth

import "io/fs"

// MendOf returns the command that allows only this user and root to write to a
// file or folder; none if that is so.
func MendOf(path string, info fs.FileInfo) (mend string) {
	for _, e := range writable(path, info) {
		mend = e.mend
	}
	return mend
}
