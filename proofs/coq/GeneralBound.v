(* Theorem (e): the general lower bound, for any order of events.

   If every score is formed by summing its d products q_ic k_jc in a partial sum
   p_ij that is in fast memory at each addition, then

     nq nk d^2 <= (loads + M) max(M, 2 d^2)

   so loads >= nq nk d^2 / max(M, 2 d^2) - M.  Nothing else is assumed: partial
   sums may be spilled, reloaded, dropped and formed again, q and k words come and
   go one at a time, and words of any other kind (values, outputs, statistics) may
   be made, moved and dropped between.  Only loads are counted.  The bound says
   nothing while nq nk d^2 <= M max(M, 2 d^2).

   Hypotheses: the execution is valid (Machine.v), and every score (i, j) is read
   once complete (task Form i j).

   Proof: cut the execution into phases of M loads (Hong and Kung 1981).  A phase
   sees at most 2M words of q, k and partial sums from outside.  A score formed in
   it either has its partial sum among them, or all of q_i and k_j (Saha and Ye
   2024, arXiv 2402.07443, Lemma 3.3); with a rows of q, b of k and p partial sums,
   d a + d b + p <= 2M, so d^2 (a b + p) <= M max(M, 2 d^2). *)
From Coq Require Import Arith Lia List.
From iosim Require Import Lists Machine.
Import ListNotations.

Inductive gword :=
| Wq (i c : nat) | Wk (j c : nat)
| Wp (i j : nat)                        (* the partial sum of score (i, j) *)
| Wx (made : bool) (n : nat).           (* anything else, an input or made *)

Inductive gtask := Mac (i j c : nat) | Form (i j : nat).

Definition gword_dec (x y : gword) : {x = y} + {x <> y}.
Proof. decide equality; first [ apply Nat.eq_dec | apply Bool.bool_dec ]. Defined.

Definition scores (d : nat) : model := {|
  word := gword;
  task := gtask;
  word_dec := gword_dec;
  input w := match w with Wq _ _ | Wk _ _ => true | Wp _ _ => false | Wx made _ => negb made end;
  needs t := match t with Mac i j c => [Wq i c; Wk j c; Wp i j] | Form i j => [Wp i j] end;
  outs t := match t with Mac i j _ => [Wp i j] | Form _ _ => [] end;
  ready t c := match t with
    | Mac _ _ _ => True
    | Form i j => forall x, x < d -> In (Mac i j x) (c (Wp i j))
    end
|}.

Section Bound.
Variables d M : nat.
Notation X := (scores d).
Definition worst := Nat.max M (2 * (d * d)).

(* A score formed in a phase that saw the words seen. *)
Definition covered (seen : list gword) (p : nat * nat) : Prop :=
  In (Wp (fst p) (snd p)) seen \/
  forall c, c < d -> In (Wq (fst p) c) seen /\ In (Wk (snd p) c) seen.

Definition has_all (f : nat -> gword) (seen : list gword) : bool :=
  forallb (fun c => if in_dec gword_dec (f c) seen then true else false) (seq 0 d).

Lemma has_all_spec f seen : has_all f seen = true <-> forall c, c < d -> In (f c) seen.
Proof.
  unfold has_all. rewrite forallb_forall. split; intros H c Hc.
  - specialize (H c). destruct (in_dec gword_dec (f c) seen); [ trivial | ].
    discriminate H. apply in_seq. lia.
  - apply in_seq in Hc. destruct (in_dec gword_dec (f c) seen); [ trivial | ].
    destruct n. apply H. lia.
Qed.

(* The arithmetic: a rows, b columns and p partial sums. *)
Lemma phase_arithmetic a b p : d * a + d * b + p <= 2 * M ->
  d * d * (a * b + p) <= M * worst.
Proof.
  intros H. unfold worst. set (m := Nat.max M (2 * (d * d))).
  assert (H1 : M <= m) by apply Nat.le_max_l.
  assert (H2 : 2 * (d * d) <= m) by apply Nat.le_max_r.
  clearbody m. remember (d * a) as u eqn:Eu. remember (d * b) as v eqn:Ev.
  assert (E : d * d * (a * b + p) = u * v + d * d * p) by (subst; lia).
  rewrite E. clear E Eu Ev.
  assert (4 * (u * v) <= (u + v) * (u + v)).
  { destruct (Nat.le_ge_cases u v) as [L | L]; apply Nat.le_exists_sub in L as (x & -> & _);
      assert (0 <= x * x) by lia; lia. }
  assert ((u + v) * (u + v) <= (u + v) * (2 * m)) by (apply Nat.mul_le_mono_l; lia).
  assert (p * (2 * (d * d)) <= p * m) by (apply Nat.mul_le_mono_l; lia).
  assert (m * (u + v + p) <= m * (2 * M)) by (apply Nat.mul_le_mono_l; lia).
  lia.
Qed.

(* A phase that saw 2M words forms few scores. *)
Lemma phase_bound seen cur : NoDup seen -> length seen <= 2 * M -> NoDup cur ->
  (forall p, In p cur -> covered seen p) ->
  d * d * length cur <= M * worst.
Proof.
  intros Ns Ls Nc C.
  set (a := nodup Nat.eq_dec (filter (fun i => has_all (Wq i) seen) (map fst cur))).
  set (b := nodup Nat.eq_dec (filter (fun j => has_all (Wk j) seen) (map snd cur))).
  set (held := fun p : nat * nat =>
                 if in_dec gword_dec (Wp (fst p) (snd p)) seen then true else false).
  set (ps := filter held cur).
  assert (L1 : length cur <= length a * length b + length ps).
  { rewrite <- prod_length, <- app_length. apply NoDup_incl_length; [ exact Nc | ].
    intros [i j] Hp. apply in_or_app.
    destruct (held (i, j)) eqn:E; [ right; apply filter_In; auto | left ].
    destruct (C _ Hp) as [H | H]; [ unfold held in E; cbn in *;
      destruct (in_dec gword_dec (Wp i j) seen); [ discriminate | tauto ] | ].
    apply in_prod; apply nodup_In, filter_In; (split; [ | apply has_all_spec; apply H ]);
      apply in_map_iff; exists (i, j); auto. }
  assert (L2 : d * length a + d * length b + length ps <= length seen).
  { set (qs := flat_map (fun i => map (Wq i) (seq 0 d)) a).
    set (ks := flat_map (fun j => map (Wk j) (seq 0 d)) b).
    set (pw := map (fun p => Wp (fst p) (snd p)) ps).
    assert (E : length (qs ++ ks ++ pw) = d * length a + d * length b + length ps).
    { rewrite !app_length. unfold qs, ks, pw.
      rewrite !(flat_map_length _ d) by (intros; now rewrite map_length, seq_length).
      rewrite map_length. lia. }
    rewrite <- E.
    assert (Q : forall w, In w qs -> exists i c, w = Wq i c /\ In w seen).
    { intros w Hw. apply in_flat_map in Hw as (i & Hi & Hw).
      apply in_map_iff in Hw as (c & <- & Hc). apply in_seq in Hc.
      apply nodup_In, filter_In in Hi as [_ Hi]. exists i, c. split; trivial.
      apply (proj1 (has_all_spec _ _) Hi). lia. }
    assert (K : forall w, In w ks -> exists j c, w = Wk j c /\ In w seen).
    { intros w Hw. apply in_flat_map in Hw as (j & Hj & Hw).
      apply in_map_iff in Hw as (c & <- & Hc). apply in_seq in Hc.
      apply nodup_In, filter_In in Hj as [_ Hj]. exists j, c. split; trivial.
      apply (proj1 (has_all_spec _ _) Hj). lia. }
    assert (P : forall w, In w pw -> exists i j, w = Wp i j /\ In w seen).
    { intros w Hw. apply in_map_iff in Hw as ([i j] & <- & Hp).
      apply filter_In in Hp as [_ Hp]. exists i, j. split; trivial.
      unfold held in Hp. cbn in *. destruct (in_dec gword_dec (Wp i j) seen); [ trivial | discriminate ]. }
    apply NoDup_incl_length.
    - apply NoDup_app; [ | apply NoDup_app | ].
      + apply (NoDup_flat_map (fun w => match w with Wq i _ => i | _ => 0 end)).
        * apply NoDup_nodup.
        * intros i _. apply NoDup_map; [ congruence | apply seq_NoDup ].
        * intros i w _ Hw. now apply in_map_iff in Hw as (c & <- & _).
      + apply (NoDup_flat_map (fun w => match w with Wk j _ => j | _ => 0 end)).
        * apply NoDup_nodup.
        * intros j _. apply NoDup_map; [ congruence | apply seq_NoDup ].
        * intros j w _ Hw. now apply in_map_iff in Hw as (c & <- & _).
      + apply NoDup_map; [ intros [] []; cbn; congruence | ]. now apply NoDup_filter.
      + intros w Hw Hw'. apply K in Hw as (? & ? & -> & _). apply P in Hw' as (? & ? & E' & _).
        discriminate.
      + intros w Hw Hw'. apply Q in Hw as (? & ? & -> & _). apply in_app_iff in Hw' as [Hw' | Hw'];
          [ apply K in Hw' as (? & ? & E' & _) | apply P in Hw' as (? & ? & E' & _) ]; discriminate.
    - intros w Hw. rewrite !in_app_iff in Hw. destruct Hw as [Hw | [Hw | Hw]].
      + now apply Q in Hw as (? & ? & _ & ?).
      + now apply K in Hw as (? & ? & _ & ?).
      + now apply P in Hw as (? & ? & _ & ?). }
  apply Nat.le_trans with (d * d * (length a * length b + length ps)).
  - apply Nat.mul_le_mono_l. exact L1.
  - apply phase_arithmetic. lia.
Qed.

(* Phases are counted along the execution: k of them are over and formed old; the
   present one has made r loads, has seen the words seen and formed cur. *)
Record counted (s : state X) (k r : nat) (seen : list gword) (cur old : list (nat * nat))
  : Prop := {
  c_loads : r <= M;
  c_seen : NoDup seen /\ length seen <= M + r;
  c_fast : forall w, In w (fast s) -> In w seen \/ input (m := X) w = false;
  c_size : length (fast s) <= M /\ NoDup (fast s);
  c_empty : forall w, ~ In w (fast s) -> content s w = [];
  c_content : forall i j c, In (Mac i j c) (content s (Wp i j)) ->
    In (Wp i j) seen \/ In (Wq i c) seen /\ In (Wk j c) seen;
  c_cur : NoDup cur /\ forall p, In p cur -> covered seen p;
  c_old : d * d * length old <= k * (M * worst)
}.

(* lia, knowing that the words of the model are gword. *)
Ltac glia := change (word (scores d)) with gword in *; lia.

(* A new phase begins. *)
Lemma counted_restart s k r seen cur old :
  counted s k r seen cur old -> counted s (S k) 0 (fast s) [] (cur ++ old).
Proof.
  intros [H1 [H2 H3] H4 [H5 H6] H7 H8 [H9 H10] H11]. split; trivial; try glia.
  - split; [ exact H6 | glia ].
  - tauto.
  - auto.
  - intros i j c H. left. destruct (in_dec gword_dec (Wp i j) (fast s)) as [Hw | Hw]; [ exact Hw | ].
    rewrite (H7 _ Hw) in H. contradiction.
  - split; [ constructor | contradiction ].
  - rewrite app_length. pose proof (phase_bound seen cur H2 ltac:(glia) H9 H10). glia.
Qed.

Lemma counted_step s k r seen cur old e :
  counted s k r seen cur old -> allowed s e -> length (fast (step s e)) <= M ->
  exists k' r' seen' cur' old', counted (step s e) k' r' seen' cur' old' /\
    k' * M + r' = k * M + r + cost_load e /\
    incl (cur ++ old) (cur' ++ old') /\
    (forall i j, e = Do (X := X) (Form i j) -> In (i, j) (cur' ++ old')).
Proof.
  intros C He HM.
  destruct e as [w | w | w | w | w | t].
  - (* Load: the only event that may begin a new phase *)
    assert (K : forall k r seen cur old, r < M -> counted s k r seen cur old ->
      exists seen', counted (step s (Load w)) k (S r) seen' cur old).
    { clear C k r seen cur old. intros k r seen cur old Hr [H1 [H2 H3] H4 [H5 H6] H7 H8 [H9 H10] H11].
      exists (enter (X := X) w seen).
      assert (I : incl seen (enter (X := X) w seen)) by (intros x Hx; apply (enter_In (X := X)); auto).
      destruct s as [f c m]; cbn [fast content saved step] in *.
      split; cbn [fast content]; trivial.
      - unfold enter. destruct (in_dec _ w seen); [ split; [ exact H2 | glia ] | ].
        split; [ now constructor | cbn; glia ].
      - intros x Hx. rewrite (enter_In (X := X)). apply (enter_In (X := X)) in Hx as [<- | Hx]; [ auto | ].
        destruct (H4 x Hx); auto.
      - split; [ exact HM | ]. unfold enter. destruct (in_dec _ w f); [ exact H6 | now constructor ].
      - intros x Hx. rewrite (enter_In (X := X)) in Hx. rewrite upd_other by tauto. apply H7. tauto.
      - intros i j x Hx. unfold upd in Hx. destruct (word_dec X w (Wp i j)) as [-> | _].
        + left. apply (enter_In (X := X)). now left.
        + destruct (H8 i j x Hx) as [? | [? ?]]; auto.
      - split; [ exact H9 | ]. intros p Hp. destruct (H10 p Hp) as [? | H]; [ left; auto | right ].
        intros x Hx. destruct (H x Hx). auto. }
    assert (M0 : 0 < M).
    { destruct s as [f c m]. cbn in HM. unfold enter in HM.
      destruct (in_dec _ w f) as [Hw | Hw]; [ destruct f; [ contradiction | cbn in HM; glia ] | ].
      cbn in HM. glia. }
    destruct (Nat.lt_ge_cases r M) as [Hr | Hr].
    + destruct (K _ _ _ _ _ Hr C) as (seen' & C').
      exists k, (S r), seen', cur, old. cbn. repeat split; try apply C'; try glia;
        [ apply incl_refl | discriminate ].
    + destruct (K _ _ _ _ _ M0 (counted_restart _ _ _ _ _ _ C)) as (seen' & C').
      exists (S k), 1, seen', [], (cur ++ old).
      assert (r = M) by (pose proof (c_loads _ _ _ _ _ _ C); glia).
      cbn. repeat split; try apply C'; try glia; [ apply incl_refl | discriminate ].
  - (* New *)
    destruct C as [H1 [H2 H3] H4 [H5 H6] H7 H8 [H9 H10] H11], He as [Hw Hi].
    exists k, r, seen, cur, old. destruct s as [f c m]; cbn in *.
    split; [ split; cbn; auto | split; [ glia | split; [ apply incl_refl | discriminate ] ] ].
    + intros x [<- | Hx]; auto.
    + split; [ exact HM | now constructor ].
    + intros x Hx. rewrite upd_other by tauto. apply H7. tauto.
    + intros i j x. unfold upd. destruct (word_dec X w (Wp i j)); [ intros [] | apply H8 ].
  - (* Store *)
    exists k, r, seen, cur, old. destruct C, s as [f c m]; cbn in *.
    split; [ now split | split; [ glia | split; [ apply incl_refl | discriminate ] ] ].
  - (* Add *)
    exists k, r, seen, cur, old. destruct C, s as [f c m]; cbn in *.
    split; [ now split | split; [ glia | split; [ apply incl_refl | discriminate ] ] ].
  - (* Drop *)
    destruct C as [H1 [H2 H3] H4 [H5 H6] H7 H8 [H9 H10] H11].
    exists k, r, seen, cur, old. destruct s as [f c m]; cbn in *.
    split; [ split; cbn; auto | split; [ glia | split; [ apply incl_refl | discriminate ] ] ].
    + intros x Hx. apply in_remove in Hx as [Hx _]. auto.
    + split; [ exact HM | ]. clear - H6. induction H6 as [| x f Hx _ IH]; cbn; [ constructor | ].
      destruct (gword_dec w x); [ exact IH | constructor; [ | exact IH ] ].
      intros H. apply in_remove in H as [H _]. auto.
    + intros x Hx. unfold upd. destruct (word_dec X w x) as [E | E]; [ reflexivity | ].
      apply H7. intros Hf. apply Hx, in_in_remove; auto.
    + intros i j x. unfold upd. destruct (word_dec X w (Wp i j)); [ intros [] | apply H8 ].
  - (* Do *)
    destruct He as [Hn Hr]. destruct t as [i j x | i j].
    + destruct C as [H1 [H2 H3] H4 [H5 H6] H7 H8 [H9 H10] H11].
      exists k, r, seen, cur, old. destruct s as [f c m]; cbn in *.
      split; [ split; cbn; auto | split; [ glia | split; [ apply incl_refl | discriminate ] ] ].
      * intros w Hw. unfold absorb.
        destruct (in_dec (word_dec X) w (outs (m := X) (Mac i j x))) as [Hw' | _]; [ | auto ].
        cbn in Hw'. destruct Hw' as [<- | []]. destruct Hw. apply Hn. cbn. auto.
      * intros i' j' x'. unfold absorb. 
        destruct (in_dec (word_dec X) (Wp i' j') (outs (m := X) (Mac i j x))) as [Hw | _];
          [ | apply H8 ].
        cbn in Hw. destruct Hw as [E | []]. injection E as <- <-.
        intros [E | H]; [ injection E as <- | now apply H8 ].
        right. split.
        -- destruct (H4 (Wq i x)); [ apply Hn; cbn; auto | assumption | discriminate ].
        -- destruct (H4 (Wk j x)); [ apply Hn; cbn; auto | assumption | discriminate ].
    + assert (E : step s (@Do X (Form i j)) = s).
      { destruct s. cbn. f_equal. }
      rewrite E in *.
      destruct (in_dec pair_dec (i, j) cur) as [Hin | Hin].
      * exists k, r, seen, cur, old. cbn.
        split; [ exact C | split; [ glia | split; [ apply incl_refl | ] ] ].
        intros i' j' E'. injection E' as <- <-. apply in_or_app. now left.
      * destruct C as [H1 [H2 H3] H4 [H5 H6] H7 H8 [H9 H10] H11].
        exists k, r, seen, ((i, j) :: cur), old. cbn.
        split; [ split; auto | split; [ glia | split; [ apply incl_tl, incl_refl | ] ] ].
        -- split; [ now constructor | ]. intros p [<- | Hp]; [ | auto ].
           destruct (in_dec gword_dec (Wp i j) seen) as [Hw | Hw]; [ now left | right ].
           intros c Hc. cbn. destruct (H8 i j c (Hr c Hc)); [ contradiction | assumption ].
        -- intros i' j' E'. injection E' as <- <-. now left.
Qed.

Lemma counted_run es : forall s k r seen cur old,
  counted s k r seen cur old -> valid M s es ->
  exists k' r' seen' cur' old', counted (run s es) k' r' seen' cur' old' /\
    k' * M + r' = k * M + r + loads es /\
    incl (cur ++ old) (cur' ++ old') /\
    (forall i j, In (@Do X (Form i j)) es -> In (i, j) (cur' ++ old')).
Proof.
  induction es as [| e es IH]; intros s k r seen cur old C V.
  - exists k, r, seen, cur, old. cbn.
    split; [ exact C | split; [ glia | split; [ apply incl_refl | tauto ] ] ].
  - destruct V as (He & HM & V).
    destruct (counted_step _ _ _ _ _ _ _ C He HM) as (k1 & r1 & s1 & c1 & o1 & C1 & L1 & I1 & F1).
    destruct (IH _ _ _ _ _ _ C1 V) as (k2 & r2 & s2 & c2 & o2 & C2 & L2 & I2 & F2).
    exists k2, r2, s2, c2, o2. split; [ exact C2 | split; [ | split ] ].
    + unfold loads in *. cbn. glia.
    + now apply incl_tran with (c1 ++ o1).
    + intros i j [-> | H]; [ apply I2; now apply F1 | now apply F2 ].
Qed.
End Bound.

(* For any duplicate-free list of visible pairs. *)
Theorem general_bound_masked d M vis (es : list (event (scores d))) :
  NoDup vis -> valid M (init (scores d)) es ->
  (forall i j, In (i, j) vis -> In (@Do (scores d) (Form i j)) es) ->
  length vis * (d * d) <= (loads es + M) * Nat.max M (2 * (d * d)).
Proof.
  intros Hv V H. change (Nat.max M (2 * (d * d))) with (worst d M).
  destruct (counted_run d M es (init _) 0 0 [] [] []) as (k & r & seen & cur & old & C & L & _ & F);
    trivial.
  - split; cbn; try contradiction; try lia; auto using NoDup_nil.
    + split; [ constructor | lia ].
    + split; [ lia | constructor ].
    + split; [ constructor | contradiction ].
  - destruct C as [H1 [H2 H3] _ _ _ _ [H9 H10] H11].
    pose proof (phase_bound d M seen cur H2 ltac:(lia) H9 H10) as P.
    assert (N : length vis <= length cur + length old).
    { rewrite <- app_length. apply NoDup_incl_length; [ exact Hv | ].
      intros [i j] Hp. now apply F, H. }
    apply (Nat.mul_le_mono_l _ _ (d * d)) in N.
    assert ((k * M + M) * worst d M <= (loads es + M) * worst d M)
      by (apply Nat.mul_le_mono_r; lia).
    lia.
Qed.

Theorem general_bound d M nq nk (es : list (event (scores d))) :
  valid M (init (scores d)) es ->
  (forall i j, i < nq -> j < nk -> In (@Do (scores d) (Form i j)) es) ->
  nq * nk * (d * d) <= (loads es + M) * Nat.max M (2 * (d * d)).
Proof.
  intros V H. rewrite <- (seq_length nq 0), <- (seq_length nk 0), <- prod_length.
  apply general_bound_masked; trivial.
  - apply NoDup_list_prod; apply seq_NoDup.
  - intros i j Hp. apply in_prod_iff in Hp as [Hi Hj]. apply in_seq in Hi, Hj. apply H; lia.
Qed.

(* For M >= 2 d^2 the leading constant is 1. *)
Corollary general_bound_constant_1 d M nq nk (es : list (event (scores d))) :
  2 * (d * d) <= M ->
  valid M (init (scores d)) es ->
  (forall i j, i < nq -> j < nk -> In (@Do (scores d) (Form i j)) es) ->
  nq * nk * (d * d) <= (loads es + M) * M.
Proof.
  intros HM V H. pose proof (general_bound d M nq nk es V H) as B.
  now rewrite Nat.max_l in B.
Qed.
