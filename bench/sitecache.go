package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/activityd/activityd/internal/mysql"
)

// provideSite fills the tables of the site. With a folder, it takes their files from
// there, or copies them there for the next time.
func provideSite(ctx context.Context, b *backend, s siteSize, folder string, log io.Writer) error {
	if folder == "" {
		return loadSite(ctx, b, s, log)
	}
	// Tables can be moved between servers of one version only.
	folder = filepath.Join(folder, fmt.Sprintf("site-%d-%d-%d-%s", s.Members, s.Private, s.most(), b.mysql.Version()))
	switch _, err := os.Stat(filepath.Join(folder, complete)); {
	case err == nil:
		fmt.Fprintf(log, "the site is taken from %s\n", folder)
		return importTables(ctx, b, folder)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := loadSite(ctx, b, s, log); err != nil {
		return err
	}
	return exportTables(ctx, b, folder)
}

// complete names an empty file that is written after all others.
const complete = "complete"

// tableFiles are the extensions of a table's files: data and metadata.
func tableFiles() []string { return []string{".ibd", ".cfg"} }

// exportTables copies the files of the tables into the folder while the server does not
// write to them.
func exportTables(ctx context.Context, b *backend, folder string) error {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	conn, err := b.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	dir, err := tableFolder(ctx, conn)
	if err != nil {
		return err
	}
	if _, err := conn.ExecContext(ctx, "FLUSH TABLES users, contacts, photos FOR EXPORT"); err != nil {
		return mysql.Translate(ctx, "export the site", err)
	}
	err = copyTables(folder, dir)
	if _, unlock := conn.ExecContext(ctx, "UNLOCK TABLES"); err == nil {
		err = unlock
	}
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, complete), nil, 0o600)
}

// importTables replaces the files of the empty tables.
func importTables(ctx context.Context, b *backend, folder string) error {
	conn, err := b.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	dir, err := tableFolder(ctx, conn)
	if err != nil {
		return err
	}
	alter := func(what string) error {
		for _, name := range siteTables() {
			if _, err := conn.ExecContext(ctx, "ALTER TABLE "+name+" "+what+" TABLESPACE"); err != nil {
				return mysql.Translate(ctx, "import the site", err)
			}
		}
		return nil
	}
	if err := alter("DISCARD"); err != nil {
		return err
	}
	if err := copyTables(dir, folder); err != nil {
		return err
	}
	if err := alter("IMPORT"); err != nil {
		return err
	}
	_, err = conn.ExecContext(ctx, "ANALYZE TABLE users, contacts, photos")
	return err
}

// tableFolder returns where the server keeps the files of the tables.
func tableFolder(ctx context.Context, conn *sql.Conn) (dir string, err error) {
	err = conn.QueryRowContext(ctx, "SELECT @@datadir").Scan(&dir)
	return filepath.Join(dir, database), err
}

func copyTables(to, from string) error {
	for _, name := range siteTables() {
		for _, end := range tableFiles() {
			if err := copyFile(filepath.Join(to, name+end), filepath.Join(from, name+end)); err != nil {
				return err
			}
		}
	}
	return nil
}

func copyFile(to, from string) (err error) {
	in, err := os.Open(from) //nolint:gosec // our own files
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600) //nolint:gosec // likewise
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
