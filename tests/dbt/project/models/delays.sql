{{ config(materialized="table") }}
select name, sum(delay) as delay from {{ ref("late") }} join {{ ref("carriers") }} using (carrier) group by name
