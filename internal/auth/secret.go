package auth

import (
	"context"
	"fmt"
	"log/slog"
)

// LoadSecret loads a file that holds a secret, such as a key, by use, which keeps what it
// has when it fails. After a [Reloader.Reload] the next content is used likewise. what is
// the log's name for the file.
func LoadSecret(what, path string, use func(text []byte) error, log *slog.Logger) (*Reloader, error) {
	r := &Reloader{
		what: what, paths: []string{path}, private: what, log: log,
		use: func(ctx context.Context, files []file) error {
			if err := use(files[0].text); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			log.InfoContext(ctx, "secret loaded", "secret", what, "file", path)
			return nil
		},
	}
	if err := r.reload(context.Background(), true); err != nil {
		return nil, err
	}
	return r, nil
}
