CREATE DATABASE site;
CREATE USER 'activityd'@'%' IDENTIFIED BY 'secret';
GRANT ALL ON site.* TO 'activityd'@'%';
