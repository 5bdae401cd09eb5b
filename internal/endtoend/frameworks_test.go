//go:build unix

package endtoend_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	driver "github.com/go-sql-driver/mysql"
)

// frameworks are those whose hook docs/adoption.md has. Each adds the contact 2 of 1 and rolls that
// back, adds it, changes it, and deletes it.
var frameworks = map[string]struct{ interpreter, before, after string }{
	"ruby": {"ruby", `
require "active_record"
ActiveRecord::Base.establish_connection(adapter: "mysql2", socket: ENV["DB_SOCKET"], username: ENV["DB_USER"], database: ENV["DB_NAME"])
ActiveRecord::Base.record_timestamps = false
`, `
Contact.transaction { Contact.create!(user_id: 1, contact_id: 2); raise ActiveRecord::Rollback }
contact = Contact.create!(user_id: 1, contact_id: 2)
contact.update!(is_friend: true)
contact.destroy!
`},
	"python": {"/usr/bin/python3", `
import os, pymysql
pymysql.install_as_MySQLdb()
import django
from django.conf import settings
settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.mysql", "NAME": os.environ["DB_NAME"], "USER": os.environ["DB_USER"], "HOST": os.environ["DB_SOCKET"]}})
django.setup()
from django.db import connection, models, transaction
from django.db.models.signals import post_delete, post_save
from django.dispatch import receiver

class Contact(models.Model):
    user_id = models.BigIntegerField()
    contact_id = models.BigIntegerField()
    is_friend = models.BooleanField(default=False)
    class Meta: app_label, db_table = "site", "contacts"

`, `
try:
    with transaction.atomic():
        Contact.objects.create(user_id=1, contact_id=2)
        raise KeyError
except KeyError:
    pass
with transaction.atomic():
    contact = Contact.objects.create(user_id=1, contact_id=2)
    contact.is_friend = True
    contact.save()
with transaction.atomic():
    contact.delete()
`},
	"php": {"php", `<?php
require '/usr/share/php/Illuminate/Database/autoload.php';
require '/usr/share/php/Illuminate/Events/autoload.php';
use Illuminate\Database\Capsule\Manager as DB;
$manager = new DB;
$manager->addConnection(['driver' => 'mysql', 'unix_socket' => getenv('DB_SOCKET'), 'host' => 'localhost', 'database' => getenv('DB_NAME'), 'username' => getenv('DB_USER'), 'password' => '', 'charset' => 'utf8mb4']);
$manager->setEventDispatcher(new Illuminate\Events\Dispatcher);
$manager->setAsGlobal();
$manager->bootEloquent();
class Contact extends Illuminate\Database\Eloquent\Model {
    public $timestamps = false;
    protected $guarded = [];
}
`, `
try {
    DB::connection()->transaction(function () { Contact::create(['user_id' => 1, 'contact_id' => 2]); throw new DomainException; });
} catch (DomainException $e) {
}
DB::connection()->transaction(function () { Contact::create(['user_id' => 1, 'contact_id' => 2])->update(['is_friend' => true]); });
DB::connection()->transaction(function () { Contact::first()->delete(); });
`},
}

// TestTheHooksOfFrameworks: a contact's task commits with it, or not at all.
func TestTheHooksOfFrameworks(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/adoption.md")
	must(t, err)
	for language, f := range frameworks {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			hook := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindStringSubmatch(string(page))
			if hook == nil {
				t.Fatal("docs/adoption.md has none")
			}
			g := newGround(t, 3)
			g.exec(t, "ALTER TABLE contacts DROP PRIMARY KEY, ADD COLUMN id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, ADD UNIQUE KEY (user_id, contact_id)")
			file := filepath.Join(t.TempDir(), "site")
			must(t, os.WriteFile(file, []byte(f.before+hook[1]+f.after), 0o600))
			cfg, err := driver.ParseDSN(g.dsn)
			must(t, err)
			cmd := exec.CommandContext(t.Context(), f.interpreter, file)
			cmd.Env = append(os.Environ(), "DB_SOCKET="+cfg.Addr, "DB_USER="+cfg.User, "DB_NAME="+cfg.DBName)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			var got []string
			rows, err := g.db.QueryContext(t.Context(), "SELECT CONCAT_WS(' ', type, subject, JSON_EXTRACT(args, '$.contact_id')) FROM tasks ORDER BY id")
			must(t, err)
			defer func() { _ = rows.Close() }()
			for rows.Next() {
				var task string
				must(t, rows.Scan(&task))
				got = append(got, task)
			}
			must(t, rows.Err())
			if want := `add_contact 1 "2", remove_contact 1 "2"`; strings.Join(got, ", ") != want {
				t.Errorf("tasks %s, want %s", fmt.Sprint(got), want)
			}
		})
	}
}
